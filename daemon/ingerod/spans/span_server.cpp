#include "daemon/ingerod/spans/span_server.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "core/model/time.h"
#include "core/spans/span_stream.h"
#include "daemon/ingerod/spans/span_writer.h"

namespace ingero {

namespace {

constexpr int accepts_per_turn = 16;
constexpr uint64_t accept_pause_us = 1'000'000;
constexpr size_t read_bytes = 64 << 10;
/// Replies that a client has not read; it is not read from while there are more.
constexpr size_t max_output_bytes = 64 << 10;
/// Spans that are not stored yet: a disk that stands still is told, not waited for.
constexpr size_t max_waiting = 65'536;
constexpr size_t max_waiting_bytes = 32 << 20;
/// Spans that nobody waits for are stored together.
constexpr uint64_t store_after_us = 200'000;
constexpr size_t store_after_spans = 4'096;
/// A writer over its limit is read from more slowly.
constexpr uint64_t limited_pause_us = 250'000;
constexpr size_t max_ancestors = 64;
constexpr size_t max_registered = 65'536;
/// Scans of all of /proc, see ScanBudget.
constexpr uint64_t scan_burst = 8, scan_period_ns = 250'000'000;

using Refusals = std::map<SpanRefusal, uint32_t>;

size_t bytes_of(const SpanRow& row) {
    size_t bytes = sizeof(SpanRow) + row.id.size() + row.model.size() + row.scope.size();
    for (const auto& [key, value] : row.labels) bytes += sizeof(row.labels[0]) + key.size() + value.size();
    for (const auto& [key, value] : row.values) bytes += sizeof(row.values[0]) + key.size();
    return bytes;
}

struct Connection {
    uint64_t number = 0;
    UniqueFd fd;
    SpanWriter writer;
    SpanLimits::Party party;
    SpanStream stream;
    EventLoop::Source io;
    EventLoop::Source pause;  ///< active: it is not read from
    std::string output;
    size_t awaited = 0;      ///< replies to come
    bool has_ended = false;  ///< sends no more
};

/// A reply that waits for its spans to be stored.
struct Reply {
    uint64_t connection = 0;
    uint64_t ack = 0;
    uint64_t accepted = 0;
    Refusals refused;
};

}  // namespace

struct SpanServer::Impl {
    struct Listener {
        UniqueFd fd;
        std::string path;
        EventLoop::Source source;
        EventLoop::Source retry;
    };

    Impl(EventLoop& event_loop, const ProcFs& proc_fs, Host span_host, const SpanQuota& quota)
        : loop(event_loop), proc(proc_fs), host(std::move(span_host)), limits(quota) {}
    ~Impl() {
        *alive = false;
        for (const auto& listener : listeners)
            if (!listener->path.empty()) unlink(listener->path.c_str());
    }

    void wait_for_clients(Listener& listener);
    void accept_clients(Listener& listener);
    void admit(UniqueFd client);
    void turn_away(int client, SpanRefusal why);
    void on_io(uint64_t number, uint32_t events);
    bool read_from(Connection& connection);
    void take(Connection& connection, SpanFrame frame);
    SpanResult<SpanRow> to_row(Connection& connection, IncomingSpan span);
    void write_to(Connection& connection);
    void update_io(Connection& connection);
    void close(uint64_t number);
    void add(SpanRow row);
    void store_soon();
    void store_now();
    void on_stored(size_t spans, size_t bytes, std::vector<Reply> replies, bool stored);
    void reply(Reply& reply);
    std::vector<ProcessKey> ancestors_of(const Process& process) const;
    void register_in(const std::string& scope, const Process& process);

    EventLoop& loop;
    const ProcFs& proc;
    Host host;
    SpanLimits limits;
    std::optional<SpanHash> hash;
    ScanBudget scans{scan_burst, scan_period_ns};
    std::vector<std::unique_ptr<Listener>> listeners;
    std::map<uint64_t, Connection> connections;
    uint64_t last_connection = 0;
    SpanFigures figures;
    ClockTriple now;  ///< of this turn
    uint64_t oldest_ns = 0;

    std::vector<SpanRow> rows;  ///< for the next commit
    size_t row_bytes = 0;       ///< of these
    size_t waiting_bytes = 0;   ///< of all that wait
    std::vector<Reply> replies;
    bool storing = false;
    EventLoop::Source store_timer;
    std::set<std::pair<std::string, ProcessKey>> registered;
    std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

void SpanServer::Impl::wait_for_clients(Listener& listener) {
    listener.source =
        loop.add_io(listener.fd.get(), EPOLLIN, [this, &listener](uint32_t) { accept_clients(listener); });
}

void SpanServer::Impl::accept_clients(Listener& listener) {
    for (int i = 0; i < accepts_per_turn; ++i) {
        UniqueFd client(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (client) {
            admit(std::move(client));
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            // The client stays in the backlog and the socket readable: without a pause the loop would spin.
            spdlog::error("span socket: {}", errno_message("accept", errno));
            listener.source.reset();
            listener.retry = loop.add_timer(accept_pause_us, [this, &listener] { wait_for_clients(listener); });
        }
        return;
    }
}

void SpanServer::Impl::turn_away(int client, SpanRefusal why) {
    ++figures.refused[static_cast<size_t>(why)];
    const std::string answer = SpanStream().encode_reply(0, 0, {{why, 1}});
    [[maybe_unused]] const ssize_t sent = send(client, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void SpanServer::Impl::admit(UniqueFd client) {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return;
    // Whoever has enough already costs no look into /proc.
    if (!limits.may_connect(credentials.uid)) return turn_away(client.get(), SpanRefusal::connection_limit);
    auto writer = SpanWriter::identify(client.get(), proc);
    if (!writer) return turn_away(client.get(), writer.error());
    const SpanLimits::Party party{writer->uid(), writer->process().cgroup, writer->is_root()};
    if (!limits.connect(party)) return turn_away(client.get(), SpanRefusal::connection_limit);
    const uint64_t number = ++last_connection;
    Connection& connection =
        connections
            .emplace(number, Connection{number, std::move(client), std::move(*writer), party, {}, {}, {}, {}, 0, false})
            .first->second;
    connection.io =
        loop.add_io(connection.fd.get(), EPOLLIN, [this, number](uint32_t events) { on_io(number, events); });
    if (!is_tree_scope(connection.writer.scope())) return;
    for (const Process& process : host.processes()) {
        const auto ancestors = ancestors_of(process);
        if (std::find(ancestors.begin(), ancestors.end(), connection.writer.process().key) != ancestors.end())
            register_in(connection.writer.scope(), process);
    }
}

void SpanServer::Impl::on_io(uint64_t number, uint32_t events) {
    const auto held = connections.find(number);
    if (held == connections.end()) return;
    Connection& connection = held->second;
    if ((events & EPOLLOUT) != 0) write_to(connection);
    // A closed peer is read to its end, whatever holds it up: nothing more can come.
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) connection.pause.reset();
    bool open = true;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) open = read_from(connection);
    const bool is_over = (events & (EPOLLHUP | EPOLLERR)) != 0 && connection.has_ended;
    if (!open || is_over || (connection.has_ended && connection.awaited == 0 && connection.output.empty()))
        close(number);
    else
        update_io(connection);
    store_soon();
}

/// False where the connection is to be closed.
bool SpanServer::Impl::read_from(Connection& connection) {
    static std::array<std::byte, read_bytes> buffer;
    const ssize_t size = recv(connection.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) {
        connection.has_ended = true;
        return true;
    }
    now = ClockTriple::now();
    oldest_ns = host.oldest_ns();
    connection.stream.feed(std::span(buffer).first(static_cast<size_t>(size)));
    for (;;) {
        auto frame = connection.stream.next();
        if (!frame) {
            ++figures.refused[static_cast<size_t>(frame.error())];
            connection.output += connection.stream.encode_reply(0, 0, {{frame.error(), 1}});
            write_to(connection);
            return false;
        }
        if (!*frame) return true;
        take(connection, std::move(**frame));
    }
}

void SpanServer::Impl::take(Connection& connection, SpanFrame frame) {
    Refusals refused = std::move(frame.refused);
    uint64_t accepted = 0;
    bool is_limited = false;
    // What is refused costs as much as what is taken.
    for (const auto& [why, count] : refused)
        for (uint32_t i = 0; i < count; ++i)
            is_limited = !limits.take(connection.party, now.monotonic_ns) || is_limited;
    for (IncomingSpan& span : frame.spans) {
        if (!limits.take(connection.party, now.monotonic_ns)) {
            is_limited = true;
            ++refused[SpanRefusal::rate_limit];
            continue;
        }
        auto row = to_row(connection, std::move(span));
        if (row) {
            ++accepted;
            add(std::move(*row));
        } else {
            ++refused[row.error()];
        }
    }
    figures.accepted += accepted;
    for (const auto& [why, count] : refused) figures.refused[static_cast<size_t>(why)] += count;
    if (frame.ack) {
        replies.push_back({connection.number, *frame.ack, accepted, std::move(refused)});
        ++connection.awaited;
    }
    if (is_limited && !connection.pause.active())
        connection.pause = loop.add_timer(limited_pause_us, [this, number = connection.number] {
            const auto held = connections.find(number);
            if (held == connections.end()) return;
            held->second.pause.reset();
            update_io(held->second);
        });
}

SpanResult<SpanRow> SpanServer::Impl::to_row(Connection& connection, IncomingSpan span) {
    if (figures.waiting >= max_waiting || waiting_bytes >= max_waiting_bytes)
        return tl::unexpected(SpanRefusal::store_full);
    if (auto placed = place_in_time(span, {.now = now, .oldest_ns = oldest_ns}); !placed)
        return tl::unexpected(placed.error());
    auto owner = connection.writer.owner(span.pid, span.start_ticks, scans);
    if (!owner) return tl::unexpected(owner.error());
    SpanRow row = std::move(span.row);
    row.process = owner->process;
    row.uid = owner->uid;
    row.scope = std::move(owner->scope);
    row.received_ns = now.monotonic_ns;
    if (row.kind == SpanKind::scope) {
        row.scope = connection.writer.scope();
        row.id = registration_id(row.scope);
    } else if (row.kind == SpanKind::request && hash) {
        row.id = (*hash)(row.id);
        // The annotations of earlier emitters have it as a label too.
        std::erase_if(row.labels, [](const auto& label) { return label.first == "request_id"; });
    }
    return row;
}

void SpanServer::Impl::write_to(Connection& connection) {
    while (!connection.output.empty()) {
        const ssize_t sent =
            send(connection.fd.get(), connection.output.data(), connection.output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) {
            connection.has_ended = true;  // nobody is there to read it
            connection.output.clear();
        }
        if (sent <= 0) return;
        connection.output.erase(0, static_cast<size_t>(sent));
    }
}

void SpanServer::Impl::update_io(Connection& connection) {
    uint32_t events = 0;
    if (!connection.output.empty()) events |= EPOLLOUT;
    if (!connection.has_ended && !connection.pause.active() && connection.output.size() < max_output_bytes)
        events |= EPOLLIN;
    loop.set_io_events(connection.io, events);
}

void SpanServer::Impl::close(uint64_t number) {
    const auto held = connections.find(number);
    limits.disconnect(held->second.party);
    connections.erase(held);
}

void SpanServer::Impl::add(SpanRow row) {
    const size_t bytes = bytes_of(row);
    row_bytes += bytes;
    waiting_bytes += bytes;
    ++figures.waiting;
    rows.push_back(std::move(row));
}

/// Whoever waits for a reply waits for one commit at most that is under way, and for its own.
void SpanServer::Impl::store_soon() {
    if (storing || (rows.empty() && replies.empty())) return;
    if (!replies.empty() || rows.size() >= store_after_spans) return store_now();
    if (!store_timer.active())
        store_timer = loop.add_timer(store_after_us, [this] {
            store_timer.reset();
            if (!storing) store_now();
        });
}

void SpanServer::Impl::store_now() {
    store_timer.reset();
    const size_t spans = rows.size(), bytes = std::exchange(row_bytes, 0);
    if (spans == 0) return on_stored(0, 0, std::exchange(replies, {}), true);
    storing = true;
    host.store(std::exchange(rows, {}),
               [this, spans, bytes, told = std::exchange(replies, {}), is_alive = alive](bool stored) mutable {
                   if (!*is_alive) return;
                   storing = false;
                   on_stored(spans, bytes, std::move(told), stored);
                   store_soon();
               });
}

void SpanServer::Impl::on_stored(size_t spans, size_t bytes, std::vector<Reply> told, bool stored) {
    figures.waiting -= spans;
    waiting_bytes -= bytes;
    if (!stored) figures.refused[static_cast<size_t>(SpanRefusal::store_full)] += spans;
    for (Reply& one : told) {
        if (!stored && one.accepted != 0) one.refused[SpanRefusal::store_full] += std::exchange(one.accepted, 0);
        reply(one);
    }
}

void SpanServer::Impl::reply(Reply& reply) {
    const auto held = connections.find(reply.connection);
    if (held == connections.end()) return;
    Connection& connection = held->second;
    --connection.awaited;
    connection.output += connection.stream.encode_reply(reply.ack, reply.accepted, reply.refused);
    write_to(connection);
    if (connection.has_ended && connection.awaited == 0 && connection.output.empty())
        close(reply.connection);
    else
        update_io(connection);
}

std::vector<ProcessKey> SpanServer::Impl::ancestors_of(const Process& process) const {
    std::vector<ProcessKey> ancestors;
    uint32_t parent = process.parent_pid;
    uint64_t child_start_ns = process.key.start_ns;
    while (parent > 1 && ancestors.size() < max_ancestors) {
        const auto facts = proc.read_process(parent);
        // One that began after its child has the pid of a parent that is gone.
        if (!facts || facts->key.start_ns > child_start_ns) break;
        ancestors.push_back(facts->key);
        child_start_ns = facts->key.start_ns;
        parent = facts->parent_pid;
    }
    return ancestors;
}

void SpanServer::Impl::register_in(const std::string& scope, const Process& process) {
    if (registered.size() >= max_registered) registered.clear();
    if (!registered.emplace(scope, process.key).second) return;
    SpanRow row;
    row.kind = SpanKind::scope;
    row.id = registration_id(scope);
    row.scope = scope;
    row.process = process.key;
    row.uid = process.uid;
    row.start_ns = row.end_ns = row.received_ns = monotonic_now_ns();
    add(std::move(row));
    store_soon();
}

SpanServer::SpanServer(EventLoop& loop, const ProcFs& proc, Host host, const SpanQuota& quota)
    : impl_(std::make_unique<Impl>(loop, proc, std::move(host), quota)) {}

SpanServer::~SpanServer() = default;

void SpanServer::listen(UniqueFd socket, std::string path) {
    fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    auto& listener = impl_->listeners.emplace_back(std::make_unique<Impl::Listener>());
    listener->fd = std::move(socket);
    listener->path = std::move(path);
    impl_->wait_for_clients(*listener);
}

void SpanServer::set_quota(const SpanQuota& quota) {
    impl_->limits.set_quota(quota);
}

void SpanServer::set_hash(std::optional<SpanHash> hash) {
    impl_->hash = std::move(hash);
}

void SpanServer::on_process(const Process& process) {
    std::optional<std::vector<ProcessKey>> ancestors;
    for (const auto& [number, connection] : impl_->connections) {
        if (!is_tree_scope(connection.writer.scope())) continue;
        if (!ancestors) ancestors = impl_->ancestors_of(process);
        if (std::find(ancestors->begin(), ancestors->end(), connection.writer.process().key) != ancestors->end())
            impl_->register_in(connection.writer.scope(), process);
    }
}

SpanFigures SpanServer::figures() const {
    SpanFigures figures = impl_->figures;
    figures.connections = impl_->limits.connections();
    return figures;
}

}  // namespace ingero
