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

/// Looking at who connects reads some files of /proc.
constexpr int accepts_per_turn = 4;
constexpr uint64_t accept_pause_us = 1'000'000;
constexpr size_t read_bytes = 64 << 10;
/// Replies that a client has not read; it is not read from while there are more.
constexpr size_t max_output_bytes = 64 << 10;
/// Spans not stored yet; more are refused: a disk that stands still is not waited for.
constexpr size_t max_waiting = 65'536;
/// Spans that nobody waits for are stored together.
constexpr uint64_t store_after_us = 200'000;
constexpr size_t store_after_spans = 4'096;
/// Each commit is a synchronisation of the disk.
constexpr uint64_t commit_period_ns = 20'000'000;
/// A writer over its limit is read from no faster than the limit allows, within these bounds.
constexpr uint64_t min_pause_us = 250'000, max_pause_us = 10'000'000;
/// Of one connection at a time: then others have their turn.
constexpr size_t frames_a_turn = 512;
/// Replies to come; it is not read from while there are more.
constexpr size_t max_awaited = 256;
/// What counts as one span more for its limit.
constexpr size_t unit_bytes = 512;
constexpr size_t max_ancestors = 16;
constexpr size_t max_registered = 65'536;

using Refusals = std::map<SpanRefusal, uint32_t>;

/// Beside the row itself.
size_t payload_of(const SpanRow& row) {
    size_t bytes = row.id.size() + row.model.size() + row.scope.size();
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
    size_t awaited = 0;         ///< replies to come
    bool has_more = false;      ///< there may be whole frames in the stream
    bool has_ended = false;     ///< sends no more
    bool cannot_write = false;  ///< nobody reads what it is sent
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
        bool lines = false;  ///< clients of the second form
        EventLoop::Source source;
        EventLoop::Source retry;
    };

    Impl(EventLoop& event_loop, const ProcFs& proc_fs, Host span_host, const SpanQuota& span_quota)
        : loop(event_loop), proc(proc_fs), host(std::move(span_host)), quota(span_quota), limits(span_quota) {}
    ~Impl() {
        *alive = false;
        // Taken is taken, also where nobody waits for a reply.
        if (!rows.empty()) host.store(std::move(rows), [](bool) {});
        for (const auto& listener : listeners)
            if (!listener->path.empty()) unlink(listener->path.c_str());
    }

    void wait_for_clients(Listener& listener);
    void accept_clients(Listener& listener);
    void admit(UniqueFd client, bool lines);
    void turn_away(int client, bool lines, SpanRefusal why);
    void on_io(uint64_t number, uint32_t events);
    void turn(uint64_t number);
    void read_from(Connection& connection);
    bool take_frames(Connection& connection);
    void rest(Connection& connection, uint64_t us);
    bool can_read(const Connection& connection) const;
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
    SpanQuota quota;
    SpanLimits limits;
    std::optional<SpanHash> hash;
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
    uint64_t stored_ns = 0;  ///< when the latest commit was asked for
    EventLoop::Source store_timer;
    /// The traced processes, and of which others each is a descendant.
    struct Traced {
        Process process;
        std::vector<ProcessKey> ancestors;
    };
    std::map<ProcessKey, Traced> traced;
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
            admit(std::move(client), listener.lines);
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

void SpanServer::Impl::turn_away(int client, bool lines, SpanRefusal why) {
    ++figures.refused[static_cast<size_t>(why)];
    SpanStream stream;
    constexpr std::byte first_of_lines{'{'};
    if (lines) stream.feed({&first_of_lines, 1});
    const std::string answer = stream.encode_reply(0, 0, {{why, 1}});
    [[maybe_unused]] const ssize_t sent = send(client, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void SpanServer::Impl::admit(UniqueFd client, bool lines) {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return;
    const uint32_t user = host.owner_of ? host.owner_of(credentials.uid) : credentials.uid;
    // Whoever has enough already costs no look into /proc. Which root it is, only that look says.
    if (credentials.uid != 0 && !limits.may_look_at(SpanLimits::user_of(user), monotonic_now_ns()))
        return turn_away(client.get(), lines, SpanRefusal::connection_limit);
    auto writer = SpanWriter::identify(client.get(), proc);
    if (!writer) return turn_away(client.get(), lines, writer.error());
    const SpanLimits::Party party = writer->party(user);
    if (!limits.connect(party)) return turn_away(client.get(), lines, SpanRefusal::connection_limit);
    const uint64_t number = ++last_connection;
    Connection connection;
    connection.number = number;
    connection.fd = std::move(client);
    connection.writer = std::move(*writer);
    connection.party = party;
    const Connection& held = connections.emplace(number, std::move(connection)).first->second;
    update_io(connections.at(number));
    if (!is_tree_scope(held.writer.scope())) return;
    const ProcessKey own = held.writer.process().key;
    for (const auto& [key, one] : traced)
        if (std::find(one.ancestors.begin(), one.ancestors.end(), own) != one.ancestors.end())
            register_in(held.writer.scope(), one.process);
}

bool SpanServer::Impl::can_read(const Connection& connection) const {
    return !connection.has_ended && !connection.has_more && !connection.pause.active() &&
           connection.awaited < max_awaited && connection.output.size() < max_output_bytes;
}

void SpanServer::Impl::on_io(uint64_t number, uint32_t events) {
    const auto held = connections.find(number);
    if (held == connections.end()) return;
    Connection& connection = held->second;
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
        connection.cannot_write = true;
        connection.output.clear();
        // epoll would report it again and again, while what it has sent is not read yet: that goes on by itself.
        if (!can_read(connection)) connection.io.reset();
    }
    if ((events & EPOLLOUT) != 0) write_to(connection);
    turn(number);
}

/// Takes what there is of one connection, within its limits, and sees to how it goes on.
void SpanServer::Impl::turn(uint64_t number) {
    const auto held = connections.find(number);
    if (held == connections.end()) return;
    Connection& connection = held->second;
    read_from(connection);
    const bool is_over = connection.has_ended && !connection.has_more;
    if (is_over && (connection.cannot_write || (connection.awaited == 0 && connection.output.empty())))
        close(number);
    else
        update_io(connection);
    store_soon();
}

void SpanServer::Impl::read_from(Connection& connection) {
    now = ClockTriple::now();
    oldest_ns = host.oldest_ns();
    if (connection.has_more && !take_frames(connection)) return;
    if (!can_read(connection)) return;
    static std::array<std::byte, read_bytes> buffer;
    const ssize_t size = recv(connection.fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
        connection.has_ended = true;
        return;
    }
    connection.stream.feed(std::span(buffer).first(static_cast<size_t>(size)));
    connection.has_more = true;
    take_frames(connection);
}

/// True where no whole frame is left.
bool SpanServer::Impl::take_frames(Connection& connection) {
    for (size_t i = 0; i < frames_a_turn; ++i) {
        if (connection.pause.active() || connection.awaited >= max_awaited) return false;
        auto frame = connection.stream.next();
        if (!frame) {
            // Told after what was promised before, and then the connection is over.
            ++figures.refused[static_cast<size_t>(frame.error())];
            replies.push_back({connection.number, 0, 0, {{frame.error(), 1}}});
            ++connection.awaited;
            connection.has_ended = true;
        }
        if (!frame || !*frame) {
            connection.has_more = false;
            return true;
        }
        take(connection, std::move(**frame));
    }
    rest(connection, 1);
    return false;
}

/// It has its next turn after that time.
void SpanServer::Impl::rest(Connection& connection, uint64_t us) {
    if (connection.pause.active()) return;
    connection.pause = loop.add_timer(us, [this, number = connection.number] {
        const auto held = connections.find(number);
        if (held == connections.end()) return;
        held->second.pause.reset();
        turn(number);
    });
}

void SpanServer::Impl::take(Connection& connection, SpanFrame frame) {
    Refusals refused = std::move(frame.refused);
    uint64_t accepted = 0, over = 0;
    const auto charge = [&](uint64_t units) {
        if (limits.take(connection.party, units, now.monotonic_ns)) return true;
        over += units;
        return false;
    };
    // What is refused costs as much as what is taken.
    for (const auto& [why, count] : refused) charge(count);
    if (frame.spans.empty() && refused.empty()) charge(1);
    for (IncomingSpan& span : frame.spans) {
        if (!charge(1 + payload_of(span.row) / unit_bytes)) {
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
    if (over != 0) rest(connection, std::clamp(over * 1'000'000 / quota.spans_per_s, min_pause_us, max_pause_us));
}

SpanResult<SpanRow> SpanServer::Impl::to_row(Connection& connection, IncomingSpan span) {
    if (figures.waiting >= max_waiting || waiting_bytes >= host.waiting_bytes)
        return tl::unexpected(SpanRefusal::store_full);
    if (auto placed = place_in_time(span, {.now = now, .oldest_ns = oldest_ns, .longest_ns = quota.max_span_ns});
        !placed)
        return tl::unexpected(placed.error());
    auto owner = connection.writer.owner(span.pid, span.start_ticks, limits.lookups_of(connection.party));
    if (!owner) return tl::unexpected(owner.error());
    SpanRow row = std::move(span.row);
    row.process = owner->process;
    row.uid = owner->uid;
    row.scope = std::move(owner->scope);
    row.received_ns = now.monotonic_ns;
    if (row.kind == SpanKind::scope) {
        row.scope = connection.writer.scope();
        row.id = registration_id(row.scope);
    }
    if (hash) {
        if (row.kind == SpanKind::request) row.id = (*hash)(row.id);
        // Earlier emitters send it as a label.
        for (auto& [key, value] : row.labels)
            if (key == "request_id") value = (*hash)(value);
    }
    return row;
}

void SpanServer::Impl::write_to(Connection& connection) {
    while (!connection.output.empty() && !connection.cannot_write) {
        const ssize_t sent =
            send(connection.fd.get(), connection.output.data(), connection.output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) connection.cannot_write = true;  // what it has sent before is still read
        if (sent > 0) connection.output.erase(0, static_cast<size_t>(sent));
    }
    if (connection.cannot_write) connection.output.clear();
}

void SpanServer::Impl::update_io(Connection& connection) {
    uint32_t events = 0;
    if (!connection.output.empty()) events |= EPOLLOUT;
    if (can_read(connection)) events |= EPOLLIN;
    if (connection.io.active())
        loop.set_io_events(connection.io, events);
    else if (events != 0)
        connection.io = loop.add_io(connection.fd.get(), events,
                                    [this, number = connection.number](uint32_t ready) { on_io(number, ready); });
}

void SpanServer::Impl::close(uint64_t number) {
    const auto held = connections.find(number);
    limits.disconnect(held->second.party);
    connections.erase(held);
    std::erase_if(replies, [&](const Reply& reply) { return reply.connection == number; });
}

void SpanServer::Impl::add(SpanRow row) {
    const size_t bytes = sizeof(SpanRow) + payload_of(row);
    row_bytes += bytes;
    waiting_bytes += bytes;
    ++figures.waiting;
    rows.push_back(std::move(row));
}

/// Whoever waits for a reply waits for one commit at most that is under way, and for its own.
void SpanServer::Impl::store_soon() {
    if (storing || (rows.empty() && replies.empty())) return;
    const bool is_awaited = !replies.empty() || rows.size() >= store_after_spans;
    const uint64_t since_ns = monotonic_now_ns() - stored_ns;
    if (is_awaited && (since_ns >= commit_period_ns || rows.empty())) return store_now();
    if (store_timer.active() && !is_awaited) return;
    store_timer = loop.add_timer(is_awaited ? (commit_period_ns - since_ns) / 1'000 + 1 : store_after_us, [this] {
        store_timer.reset();
        if (!storing) store_now();
    });
}

void SpanServer::Impl::store_now() {
    store_timer.reset();
    const size_t spans = rows.size(), bytes = std::exchange(row_bytes, 0);
    if (spans == 0) return on_stored(0, 0, std::exchange(replies, {}), true);
    storing = true;
    stored_ns = monotonic_now_ns();
    host.store(std::exchange(rows, {}),
               [this, spans, bytes, due = std::exchange(replies, {}), is_alive = alive](bool stored) mutable {
                   if (!*is_alive) return;
                   storing = false;
                   on_stored(spans, bytes, std::move(due), stored);
                   store_soon();
               });
}

void SpanServer::Impl::on_stored(size_t spans, size_t bytes, std::vector<Reply> due, bool stored) {
    figures.waiting -= spans;
    waiting_bytes -= bytes;
    if (!stored) figures.refused[static_cast<size_t>(SpanRefusal::store_full)] += spans;
    for (Reply& one : due) {
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
    if (connection.awaited != 0 && connection.output.size() < max_output_bytes) return;  // more come, together
    write_to(connection);
    // In a turn of its own: it may have more to take, or be over.
    rest(connection, 1);
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
    if (figures.waiting >= max_waiting) return;
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

void SpanServer::listen(UniqueFd socket, Form form, std::string path) {
    fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    auto& listener = impl_->listeners.emplace_back(std::make_unique<Impl::Listener>());
    listener->fd = std::move(socket);
    listener->path = std::move(path);
    listener->lines = form == Form::lines;
    impl_->wait_for_clients(*listener);
}

void SpanServer::set_quota(const SpanQuota& quota) {
    impl_->quota = quota;
    impl_->limits.set_quota(quota);
}

void SpanServer::set_hash(std::optional<SpanHash> hash) {
    impl_->hash = std::move(hash);
}

std::optional<std::string> SpanServer::hash_of(std::string_view id) const {
    return impl_->hash ? std::optional((*impl_->hash)(id)) : std::nullopt;
}

void SpanServer::on_process(const Process& process) {
    if (process.exited_ns != 0) return forget(process.key);
    const auto [known, added] = impl_->traced.try_emplace(process.key);
    if (!added) return;
    known->second = {process, impl_->ancestors_of(process)};
    const auto& ancestors = known->second.ancestors;
    for (const auto& [number, connection] : impl_->connections)
        if (is_tree_scope(connection.writer.scope()) &&
            std::find(ancestors.begin(), ancestors.end(), connection.writer.process().key) != ancestors.end())
            impl_->register_in(connection.writer.scope(), process);
}

void SpanServer::forget(const ProcessKey& process) {
    impl_->traced.erase(process);
}

SpanFigures SpanServer::figures() const {
    SpanFigures figures = impl_->figures;
    figures.connections = impl_->limits.connections();
    return figures;
}

}  // namespace ingero
