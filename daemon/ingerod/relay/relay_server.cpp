#include "daemon/ingerod/relay/relay_server.h"

#include <fcntl.h>
#include <pwd.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/model/time.h"
#include "core/store/rows/state_names.h"
#include "core/wire/value.h"
#include "daemon/ingerod/limits/token_bucket.h"
#include "daemon/ingerod/loop/log_throttle.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr const char* relay_user = "ingero-relay";
constexpr uint64_t accept_pause_us = 1'000'000;
/// Relays at a time: the one there is, and one that takes its place.
constexpr size_t max_connections = 2;
constexpr size_t read_bytes = 64 << 10;
/// GPUs, what happens to them, and ports: more than a host has.
constexpr size_t max_sources = 192;
/// A source that says nothing for so long makes room for others.
constexpr uint64_t forget_after_ns = 600'000'000'000;
/// Measurements that may come late, together.
constexpr uint64_t row_burst = 8;
/// Of the interval, what may lie between two measurements of a source at the least, in the long run.
constexpr uint64_t least_share = 2;
constexpr uint64_t least_period_ns = 1'000'000;
constexpr uint64_t off_period_ns = 1'000'000'000;
/// Of what happens to a GPU, which no interval bounds.
constexpr uint64_t event_burst = 64;
constexpr uint64_t event_period_ns = 1'000'000'000;
constexpr uint64_t stale_ns = 10'000'000'000;

/// Who may report: root, whoever runs this, and the relay's user.
std::set<uid_t> who_may_report() {
    std::set<uid_t> users = {0, geteuid()};
    if (const passwd* relay = getpwnam(relay_user)) users.insert(relay->pw_uid);
    return users;
}

}  // namespace

struct RelayServer::Impl {
    struct Connection {
        UniqueFd fd;
        EventLoop::Source source;
        ValueDecoder decoder{relay_limits};
        std::map<std::string, RelaySource> sources;
    };
    struct Known {
        TokenBucket bucket;
        uint64_t reported_ns = 0;
    };
    struct Gpu {
        uint64_t time_ns = 0;
        std::optional<uint32_t> index;
        std::vector<GpuProcess> processes;
    };

    EventLoop& loop;
    uint64_t interval_ns;
    std::function<void(StateRow)> store;
    std::function<uint64_t()> now_ns;
    std::set<uid_t> tellers = who_may_report();
    UniqueFd listener = {};
    std::string path = {};
    EventLoop::Source source;
    EventLoop::Source retry;
    std::map<int, Connection> connections;       ///< by descriptor
    std::map<std::string, Gpu> gpus;             ///< by source
    std::map<std::string, Known> known;          ///< by source
    std::optional<std::set<std::string>> there;  ///< UUIDs of GPUs
    LogThrottle refused_log;
    uint64_t rows = 0;
    uint64_t refused = 0;

    void wait_for_clients();
    void accept_client();
    void on_readable(int fd);
    void take(Connection& connection, const json& message);
    void take(RelaySample sample);
    void take(RelayInventory inventory);
    bool may_report(const std::string& source);
    TokenBucket bucket_of(const std::string& source) const;
    void report_change(const std::string& uuid, std::string_view change, uint64_t time_ns);
    void send_interval(const Connection& connection) const;
};

void RelayServer::Impl::wait_for_clients() {
    source = loop.add_io(listener.get(), EPOLLIN, [this](uint32_t) { accept_client(); });
}

void RelayServer::Impl::accept_client() {
    UniqueFd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
        spdlog::error("relay socket: {}", errno_message("accept", errno));
        source.reset();
        retry = loop.add_timer(accept_pause_us, [this] { wait_for_clients(); });
        return;
    }
    ucred peer{};
    socklen_t size = sizeof(peer);
    const bool known_peer = getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (!known_peer || !tellers.contains(peer.uid)) {
        ++refused;
        if (const auto more = refused_log.take())
            spdlog::warn("relay socket: refused a process of user {}{}", peer.uid, *more);
        return;
    }
    if (connections.size() >= max_connections) {
        ++refused;
        if (const auto more = refused_log.take())
            spdlog::warn("relay socket: refused process {}, since {} are connected already{}", peer.pid,
                         connections.size(), *more);
        return;
    }
    const int fd = client.get();
    Connection& connection = connections[fd];
    connection.fd = std::move(client);
    connection.source = loop.add_io(fd, EPOLLIN, [this, fd](uint32_t) { on_readable(fd); });
    send_interval(connection);
}

void RelayServer::Impl::send_interval(const Connection& connection) const {
    const std::string message = encode_value({{"gpu_poll_ns", interval_ns}});
    // A relay that reads nothing has its old interval.
    [[maybe_unused]] const ssize_t sent =
        send(connection.fd.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void RelayServer::Impl::on_readable(int fd) {
    const auto found = connections.find(fd);
    if (found == connections.end()) return;
    Connection& connection = found->second;
    std::array<std::byte, read_bytes> buffer;
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    bool good = got > 0;
    if (good) connection.decoder.feed(std::span(buffer).first(static_cast<size_t>(got)));
    while (good) {
        const auto message = connection.decoder.next();
        good = message.has_value();
        if (!message) {
            ++refused;
            spdlog::warn("relay socket: closed the connection of ingero-relay: {}", message.error().message);
        }
        if (!message || !*message) break;
        take(connection, **message);
    }
    if (!good) connections.erase(fd);
}

void RelayServer::Impl::take(Connection& connection, const json& message) {
    auto parsed = parse_relay_message(message, now_ns());
    if (!parsed) {
        ++refused;
        if (const auto more = refused_log.take()) spdlog::warn("{}{}", parsed.error().message, *more);
        return;
    }
    if (auto* state = std::get_if<RelaySource>(&*parsed))
        connection.sources[state->name] = std::move(*state);
    else if (auto* inventory = std::get_if<RelayInventory>(&*parsed))
        take(std::move(*inventory));
    else
        take(std::get<RelaySample>(std::move(*parsed)));
}

TokenBucket RelayServer::Impl::bucket_of(const std::string& source) const {
    if (source.starts_with(gpu_event_source)) return {event_burst, event_period_ns};
    return {row_burst, interval_ns == 0 ? off_period_ns : std::max(interval_ns / least_share, least_period_ns)};
}

/// Whether this source is known, or can be, and has not reported too much.
bool RelayServer::Impl::may_report(const std::string& source) {
    const uint64_t now = now_ns();
    auto found = known.find(source);
    if (found == known.end() && known.size() >= max_sources)
        std::erase_if(known, [&](const auto& one) { return one.second.reported_ns + forget_after_ns < now; });
    if (found == known.end()) {
        if (known.size() >= max_sources) return false;
        found = known.emplace(source, Known{bucket_of(source), 0}).first;
    }
    found->second.reported_ns = now;
    return found->second.bucket.take(now);
}

void RelayServer::Impl::take(RelayInventory inventory) {
    const auto before = std::exchange(there, inventory.uuids);
    if (!before) return;
    for (const std::string& uuid : *before)
        if (!inventory.uuids.contains(uuid)) report_change(uuid, gpu_lost, inventory.time_ns);
    for (const std::string& uuid : inventory.uuids)
        if (!before->contains(uuid)) report_change(uuid, gpu_found, inventory.time_ns);
}

void RelayServer::Impl::report_change(const std::string& uuid, std::string_view change, uint64_t time_ns) {
    if (change == gpu_lost) gpus.erase(std::string(gpu_source).append(uuid));
    StateRow row{.time_ns = time_ns, .source = std::string(gpu_event_source).append(uuid), .values = {}, .number = 0};
    row.texts.emplace_back(gpu_change, change);
    if (!may_report(row.source)) return void(++refused);
    spdlog::warn("GPU {} was {}", uuid, change);
    ++rows;
    store(std::move(row));
}

void RelayServer::Impl::take(RelaySample sample) {
    StateRow& row = sample.row;
    if (!may_report(row.source)) return void(++refused);
    if (row.source.starts_with(gpu_source)) {
        Gpu& gpu = gpus[row.source];
        gpu.time_ns = row.time_ns;
        gpu.processes = std::move(sample.processes);
        for (const auto& [name, value] : row.values)
            if (name == "gpu_index") gpu.index = static_cast<uint32_t>(value);
    }
    ++rows;
    store(std::move(row));
}

RelayServer::RelayServer(EventLoop& loop, uint64_t interval_ns, std::function<void(StateRow)> store,
                         std::function<uint64_t()> now)
    : impl_(new Impl{.loop = loop,
                     .interval_ns = interval_ns,
                     .store = std::move(store),
                     .now_ns = std::move(now),
                     .listener = UniqueFd(),
                     .path = {},
                     .source = {},
                     .retry = {},
                     .connections = {},
                     .gpus = {},
                     .known = {},
                     .there = {},
                     .refused_log = {}}) {}

RelayServer::~RelayServer() {
    if (!impl_->path.empty()) unlink(impl_->path.c_str());
}

void RelayServer::listen(UniqueFd socket, std::string path) {
    impl_->listener = std::move(socket);
    impl_->path = std::move(path);
    fcntl(impl_->listener.get(), F_SETFL, fcntl(impl_->listener.get(), F_GETFL) | O_NONBLOCK);
    impl_->wait_for_clients();
}

void RelayServer::set_interval(uint64_t interval_ns) {
    if (std::exchange(impl_->interval_ns, interval_ns) == interval_ns) return;
    for (auto& [source, one] : impl_->known) one.bucket = impl_->bucket_of(source);
    for (const auto& [fd, connection] : impl_->connections) impl_->send_interval(connection);
}

json RelayServer::status() const {
    json sources = json::object();
    for (const auto& [fd, connection] : impl_->connections)
        for (const auto& [name, source] : connection.sources)
            sources[name] = {{"state", source.state}, {"reason", source.reason.empty() ? json() : json(source.reason)}};
    return {{"connected", !impl_->connections.empty()},
            {"interval_ns", impl_->interval_ns},
            {"rows", impl_->rows},
            {"refused", impl_->refused},
            {"sources", std::move(sources)}};
}

std::optional<RelayServer::ProcessUse> RelayServer::use_of(const ProcessKey& key, const ClockTriple& clock) const {
    ProcessUse use;
    const uint64_t now = impl_->now_ns();
    bool found = false;
    for (const auto& [source, gpu] : impl_->gpus) {
        if (gpu.time_ns + stale_ns + 2 * impl_->interval_ns < now) continue;
        // What was measured before it began is of another that had its number.
        if (gpu.time_ns + clock.boottime_ns < key.start_ns + clock.monotonic_ns) continue;
        for (const GpuProcess& process : gpu.processes) {
            if (process.pid != key.pid) continue;
            found = true;
            if (gpu.index) use.devices.push_back(*gpu.index);
            if (process.memory_bytes) use.memory_bytes = use.memory_bytes.value_or(0) + *process.memory_bytes;
        }
    }
    if (!found) return std::nullopt;
    std::sort(use.devices.begin(), use.devices.end());
    use.devices.erase(std::unique(use.devices.begin(), use.devices.end()), use.devices.end());
    return use;
}

}  // namespace ingero
