#include "daemon/ingerod/control/control_connection.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <span>
#include <utility>

#include "core/render/render.h"
#include "core/store/rows/history.h"
#include "core/wire/fd_passing.h"
#include "core/wire/value.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr size_t read_bytes = 64 << 10;
/// A client that pipelines thousands of requests gets them answered, but not all in one turn of the loop.
constexpr int messages_per_turn = 32;
/// A stream adds to the output only below this.
constexpr size_t output_low_water = 256 << 10;
/// Answers up to this are held without being counted.
constexpr size_t small_answer_bytes = 256 << 10;
constexpr size_t most_discarded_bytes = 1 << 20;

constexpr std::array<const char*, 4> query_params = {"from_ns", "to_ns", "since_ns", "limit"};

constexpr size_t most_name_bytes = 256;
/// Of an id as an answer prints it: what is not UTF-8 has become longer.
constexpr size_t most_request_id_bytes = 3 * max_span_id_bytes;

/// What only `query` takes.
Result<bool> check_sql_param(const std::string& key, const json& value) {
    if (key == "explain" && !value.is_boolean())
        return fail(ErrorCode::bad_request, "parameter is not a boolean: " + key);
    if (key == "sql" && !value.is_string()) return fail(ErrorCode::bad_request, "parameter is not a string: " + key);
    return key == "explain" || key == "sql";
}

/// What only `export` takes. The worker knows the formats.
Result<bool> check_export_param(const std::string& key, const json& value) {
    if (key == "format" && !value.is_string()) return fail(ErrorCode::bad_request, "parameter is not a string: " + key);
    if (key == "cursor" && !value.is_null() && !value.is_object())
        return fail(ErrorCode::bad_request, "parameter is not a map: " + key);
    return key == "format" || key == "cursor";
}

/// What only `record` takes.
Result<bool> check_record_param(const std::string& key, const json& value) {
    if (key == "unit" && (!value.is_string() || value.get_ref<const std::string&>().size() > most_name_bytes))
        return fail(ErrorCode::bad_request, "parameter is not a short string: " + key);
    if (key == "rest" && !value.is_boolean()) return fail(ErrorCode::bad_request, "parameter is not a boolean: " + key);
    if (key == "stacks" && !value.is_array()) return fail(ErrorCode::bad_request, "parameter is not a list: " + key);
    const bool number = key == "start_ns" || key == "after" || key == "after_ns";
    if (number && !value.is_number_unsigned())
        return fail(ErrorCode::bad_request, "parameter is not an unsigned integer: " + key);
    return number || key == "unit" || key == "rest" || key == "stacks";
}

/// What only `requests` takes.
Result<bool> check_requests_param(const std::string& key, const json& value) {
    if (key == "slower_than_ns" && !value.is_number_unsigned())
        return fail(ErrorCode::bad_request, "parameter is not an unsigned integer: " + key);
    const bool text = key == "by" || key == "request";
    if (text && (!value.is_string() || value.get_ref<const std::string&>().size() > most_request_id_bytes))
        return fail(ErrorCode::bad_request, "parameter is not a short string: " + key);
    return text || key == "slower_than_ns";
}

/// What only `waits` takes.
Result<bool> check_waits_param(const std::string& key, const json& value) {
    if (key == "between_calls" && !value.is_boolean())
        return fail(ErrorCode::bad_request, "parameter is not a boolean: " + key);
    if (key == "tid" && (!value.is_number_unsigned() || value > std::numeric_limits<uint32_t>::max()))
        return fail(ErrorCode::bad_request, "parameter is not a thread id: " + key);
    if (key == "by" && (!value.is_string() || value.get_ref<const std::string&>().size() > most_name_bytes))
        return fail(ErrorCode::bad_request, "parameter is not a short string: " + key);
    return key == "between_calls" || key == "tid" || key == "by";
}

/// What only `incidents` takes.
Result<bool> check_incidents_param(const std::string& key, const json& value) {
    if (key == "verify" && !value.is_boolean())
        return fail(ErrorCode::bad_request, "parameter is not a boolean: " + key);
    if (key == "id" && (!value.is_string() || value.get_ref<const std::string&>().size() > most_request_id_bytes))
        return fail(ErrorCode::bad_request, "parameter is not a short string: " + key);
    return key == "verify" || key == "id";
}

/// What only `query` takes, or `export`, `record`, `requests`, or `stacks`, and of it `stats`. False where the key is
/// none of it.
Result<bool> check_own_param(const std::string& method, const std::string& key, const json& value) {
    if (method == "query") return check_sql_param(key, value);
    if (method == "export") return check_export_param(key, value);
    if (method == "record") return check_record_param(key, value);
    if (method == "requests") return check_requests_param(key, value);
    if (method == "waits") return check_waits_param(key, value);
    if (method == "incidents") return check_incidents_param(key, value);
    if (method == "explain" && key == "slices") {
        if (!value.is_number_unsigned())
            return fail(ErrorCode::bad_request, "parameter is not an unsigned integer: " + key);
        return true;
    }
    const bool stacks = method == "stacks", stats = method == "stats";
    if ((stacks && key == "off_cpu") || (stats && (key == "calls_only" || key == "outermost"))) {
        if (!value.is_boolean()) return fail(ErrorCode::bad_request, "parameter is not a boolean: " + key);
        return true;
    }
    if (!(stacks && key == "op") && !((stacks || stats) && key == "by")) return false;
    if (!value.is_string() || value.get_ref<const std::string&>().size() > most_name_bytes)
        return fail(ErrorCode::bad_request, "parameter is not a short string: " + key);
    return true;
}

/// `from_ns` with `to_ns`, or `since_ns`, or none of them; `pid` and `limit` as one likes; and what the method takes
/// besides.
Result<void> check_query_params(const std::string& method, const json& params) {
    for (const auto& [key, value] : params.items()) {
        const auto own = check_own_param(method, key, value);
        if (!own) return tl::unexpected(own.error());
        if (*own) continue;
        const bool known =
            key == "pid" || std::find(query_params.begin(), query_params.end(), key) != query_params.end();
        if (!known) return fail(ErrorCode::bad_request, "unknown parameter: " + escape_text(key.substr(0, 64)));
        if (!value.is_number_unsigned())
            return fail(ErrorCode::bad_request, "parameter is not an unsigned integer: " + key);
    }
    if (method == "query" && !params.contains("sql"))
        return fail(ErrorCode::bad_request, "query needs sql, a statement");
    const bool from = params.contains("from_ns");
    if (from != params.contains("to_ns")) return fail(ErrorCode::bad_request, "from_ns and to_ns go together");
    if (from && params.contains("since_ns"))
        return fail(ErrorCode::bad_request, "since_ns cannot be combined with from_ns and to_ns");
    if (from && params["from_ns"].get<uint64_t>() >= params["to_ns"].get<uint64_t>())
        return fail(ErrorCode::bad_request, "the window is empty: from_ns is not before to_ns");
    if (params.contains("pid") && params["pid"].get<uint64_t>() - 1 > INT32_MAX - 1)
        return fail(ErrorCode::bad_request, "pid is out of range");
    return {};
}

}  // namespace

ControlConnection::ControlConnection(ControlHost& host, int fd, const Caller& caller)
    : host_(host), fd_(fd), caller_(caller), hello_due_(Clock::now() + host.options().stall) {}

ControlConnection::~ControlConnection() {
    io_.reset();  // before its descriptor is gone
    if (fd_ >= 0) close_socket();
}

void ControlConnection::start() {
    io_ = host_.loop().add_io(fd_, EPOLLIN, [weak = weak_from_this()](uint32_t events) {
        if (const auto self = weak.lock()) self->on_io(events);
    });
}

void ControlConnection::on_io(uint32_t events) {
    const auto self = shared_from_this();
    if (events & EPOLLIN) read_input();
    advance();
    // Both sides are shut: nobody is left to read an answer.
    if (fd_ >= 0 && events & (EPOLLHUP | EPOLLERR)) close();
}

void ControlConnection::read_input() {
    if (!is_free() || input_ended_ || resuming_) return;
    std::array<std::byte, read_bytes> buffer;
    std::vector<UniqueFd> fds;
    const ssize_t size = receive_with_fds(fd_, buffer, fds);
    if (!fds.empty() && is_root()) passed_fd_ = std::move(fds.back());  // of others they are closed unread
    if (size < 0) {
        if (errno != EAGAIN && errno != EINTR) close();
        return;
    }
    input_ended_ = size == 0;
    decoder_.feed(std::span(buffer).first(static_cast<size_t>(size)));
}

/// Does what can be done now. Answers that are there at once come back here, and find it under way.
void ControlConnection::advance() {
    if (advancing_ || fd_ < 0) return;
    const auto self = shared_from_this();
    advancing_ = true;
    send_output();
    process();
    pump_stream();
    advancing_ = false;
    if (fd_ < 0) return;
    const bool all_done = !pending_ && !stream_ && !resuming_;
    if (unsent_bytes() == 0 && (closing_ || (input_ended_ && all_done))) return close();
    update_events();
}

void ControlConnection::process() {
    for (int handled = 0; is_free() && !resuming_; ++handled) {
        if (handled == messages_per_turn) {
            resuming_ = true;
            resume_ = host_.loop().defer([weak = weak_from_this()] {
                const auto self = weak.lock();
                if (!self) return;
                self->resuming_ = false;
                self->advance();
            });
            break;
        }
        auto message = decoder_.next();
        if (!message) return refuse(message.error());
        if (!*message) break;
        message_due_ = {};
        if (auto* request = std::get_if<RpcRequest>(&**message))
            handle(std::move(*request));
        else if (std::holds_alternative<RpcResponse>(**message))
            return refuse({ErrorCode::bad_request, "a client does not send responses", ""});
        // As MessagePack-RPC has it, a notification that is not known is no error, and none is.
        send_output();
    }
    // Counted from the message's first byte: a client that sends a byte now and then does not last either.
    if (is_free() && !resuming_ && decoder_.pending_bytes() != 0 && message_due_ == Clock::time_point{})
        message_due_ = Clock::now() + host_.options().stall;
}

void ControlConnection::handle(RpcRequest request) {
    if (request.id == 0) return refuse({ErrorCode::bad_request, "a request's id is 0", ""});
    if (request.method == "hello") return hello(request);
    if (!greeted_)
        return answer_error(request.id, {ErrorCode::bad_request, "the first request must be hello", "say hello first"});
    // What it sends comes at any time, and a worker may be handed a connection only whole.
    if (stream_)
        return answer_error(request.id,
                            {ErrorCode::busy, "a trace or monitor runs on this connection", "use another connection"});
    const bool takes_nothing = request.method == "status" || request.method == "processes" ||
                               request.method == "probes" || request.method == "reload" || request.method == "monitor";
    if (takes_nothing && !request.params.empty())
        return answer_error(request.id, {ErrorCode::bad_request, request.method + " accepts no parameters", ""});
    if (request.method == "status") return answer(request.id, host_.backend().status(caller_));
    if (request.method == "processes") return answer(request.id, host_.backend().processes(caller_));
    if (request.method == "probes") return answer(request.id, host_.backend().probes(caller_));
    if (request.method == "reload") return reload(request);
    if (request.method == "gpus" || request.method == "stats" || request.method == "stacks" ||
        request.method == "waits" || request.method == "stragglers" || request.method == "incidents" ||
        request.method == "explain" || request.method == "requests" || request.method == "query" ||
        request.method == "export" || request.method == "record")
        return start_query(request);
    if (request.method == "check") return start_check(request);
    if (request.method == "trace" || request.method == "monitor") return start_stream(request);
    if (request.method == "footprint") return footprint(request);
    if (request.method == "snapshot") return start_snapshot(request);
    answer_error(request.id, {ErrorCode::unknown_method, "no such method: " + escape_text(request.method.substr(0, 64)),
                              "hello lists the methods under features"});
}

void ControlConnection::hello(const RpcRequest& request) {
    const json& params = request.params;
    if (!params.contains("version") || !params["version"].is_number_unsigned())
        return answer_error(
            request.id, {ErrorCode::bad_request, "hello needs the version of the protocol that the client speaks", ""});
    if (params["version"] != control_protocol_version)
        return answer_error(
            request.id, {ErrorCode::version,
                         "this ingerod speaks control protocol " + std::to_string(control_protocol_version) + " only",
                         "use an ingeroctl of the same version as ingerod"});
    greeted_ = true;
    answer(request.id, {{"version", host_.options().version},
                        {"node", host_.backend().node()},
                        {"sees_all", caller_.sees_all},
                        {"features", {"status",     "processes", "probes",  "gpus",      "stats",  "stacks",  "waits",
                                      "stragglers", "incidents", "explain", "requests",  "query",  "export",  "record",
                                      "check",      "trace",     "monitor", "footprint", "reload", "snapshot"}}});
}

// What changes the daemon is root's here; others go by D-Bus, where polkit decides.
bool ControlConnection::is_root() const {
    return caller_.sees_all && (caller_.uid == 0 || caller_.uid == geteuid());
}

void ControlConnection::reload(const RpcRequest& request) {
    if (!is_root())
        return answer_error(request.id, {ErrorCode::denied, "only root may reload the configuration here",
                                         "run it as root, or call Reload on D-Bus, where polkit decides"});
    const auto done = host_.backend().reload();
    if (!done) return answer_error(request.id, done.error());
    answer(request.id, *done);
}

void ControlConnection::start_query(const RpcRequest& request) {
    if (const auto checked = check_query_params(request.method, request.params); !checked)
        return answer_error(request.id, checked.error());
    const uint64_t ticket = begin_request(true);
    const auto begins = [weak = weak_from_this(), ticket] {
        if (const auto self = awaiting(weak, ticket)) self->pending_->begun = true;
    };
    const auto done = [weak = weak_from_this(), ticket, id = request.id](const Result<void>& answered) {
        const auto self = awaiting(weak, ticket);
        if (!self) return;
        const bool begun = self->pending_->begun;
        self->pending_.reset();
        // What is there of the answer cannot be taken back, and is followed by nothing that could be taken for its
        // rest.
        if (!answered && begun) {
            self->host_.log_refusal(self->caller_, escape_text(answered.error().message));  // a worker's words
            return self->close();
        }
        if (!answered) self->answer_error(id, answered.error());
        self->advance();
    };
    const auto connection = [weak = weak_from_this(), ticket] {
        const auto self = awaiting(weak, ticket);
        return self ? self->fd_ : -1;
    };
    host_.backend().hand_over(caller_, request.method, request.params, {request.id, connection, begins, done});
}

// To probe is to attach to a program, if only to one of the package: root's to ask for.
void ControlConnection::start_check(const RpcRequest& request) {
    const json& params = request.params;
    const auto probe = params.find("probe");
    if (params.size() > (probe == params.end() ? 0u : 1u) || (probe != params.end() && !probe->is_boolean()))
        return answer_error(request.id,
                            {ErrorCode::bad_request, "check accepts only the parameter probe, true or false", ""});
    if (params.value("probe", false) && !is_root())
        return answer_error(request.id, {ErrorCode::denied, "only root may ask the daemon to probe",
                                         "run it as root, or leave out --probe"});
    host_.backend().check(caller_, params.value("probe", false), answer_later(request));
}

// One a connection, which it ends with: a reader of two takes two connections, which are counted.
void ControlConnection::start_stream(const RpcRequest& request) {
    // Not at once: it may become ready while it is being asked for what is next.
    const auto on_ready = [this, weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self || pump_.active()) return;
        pump_ = host_.loop().defer([weak] {
            const auto held = weak.lock();
            if (!held) return;
            held->pump_.reset();
            held->advance();
        });
    };
    const bool is_trace = request.method == "trace";
    auto stream = is_trace ? host_.backend().trace(caller_, request.params, on_ready)
                           : host_.backend().monitor(caller_, on_ready);
    if (!stream) return answer_error(request.id, stream.error());
    answer(request.id, json::object());
    stream_ = std::move(*stream);
    notification_ = is_trace ? trace_calls : monitor_notices;
}

// It lasts as long as the connection: a client that is gone leaves no probes behind.
void ControlConnection::footprint(const RpcRequest& request) {
    const json& params = request.params;
    const auto pid = params.find("pid"), finish = params.find("finish");
    const bool begins = pid != params.end(), finishes = finish != params.end();
    if (params.size() > 1 || (params.size() == 1 && !begins && !finishes) ||
        (begins && (!pid->is_number_unsigned() || pid->get<uint64_t>() - 1 > INT32_MAX - 1)) ||
        (finishes && *finish != true))
        return answer_error(request.id,
                            {ErrorCode::bad_request, "footprint accepts a pid, or finish: true, or nothing", ""});
    if (begins) {
        if (footprint_)
            return answer_error(request.id, {ErrorCode::busy, "a footprint is recorded on this connection already",
                                             "finish it, or use another connection"});
        auto begun = host_.backend().footprint(caller_, pid->get<uint32_t>());
        if (!begun) return answer_error(request.id, begun.error());
        footprint_ = std::move(*begun);
        return answer(request.id, json::object());
    }
    if (!footprint_)
        return answer_error(
            request.id, {ErrorCode::not_found, "no footprint is recorded on this connection", "begin one with a pid"});
    if (!finishes) return answer(request.id, {{"ended", footprint_->has_ended()}});
    answer(request.id, footprint_->finish(), false);  // it is sent once, and there are few
    footprint_.reset();
}

void ControlConnection::pump_stream() {
    while (fd_ >= 0 && stream_ && unsent_bytes() < output_low_water) {
        const auto next = stream_->next();
        if (!next) return;
        write(encode(RpcNotification{notification_, json::array({*next})}));
        send_output();
    }
}

// A client's file, never its path: what the daemon may open is no measure of what the client may.
void ControlConnection::start_snapshot(const RpcRequest& request) {
    UniqueFd file = std::exchange(passed_fd_, UniqueFd());
    if (!is_root())
        return answer_error(request.id, {ErrorCode::denied, "only root may take a copy of the store",
                                         "run it as root or as the user that ingerod runs as"});
    struct stat status {};
    const int flags = file ? fcntl(file.get(), F_GETFL) : -1;
    const bool fits = file && request.params.empty() && fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                      status.st_size == 0 && flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && (flags & O_APPEND) == 0;
    if (!fits)
        return answer_error(
            request.id,
            {ErrorCode::bad_request,
             "snapshot needs the descriptor of an empty file that is open for writing, not for appending", ""});
    host_.backend().snapshot(
        std::move(file),
        [weak = weak_from_this()] {
            const auto self = weak.lock();
            return self && self->fd_ >= 0;
        },
        answer_later(request));
}

uint64_t ControlConnection::begin_request(bool handed_over) {
    pending_ = Pending{.ticket = ++last_ticket_, .handed_over = handed_over};
    return last_ticket_;
}

/// The connection, where it still waits for that request: one that is answered twice is answered once.
std::shared_ptr<ControlConnection> ControlConnection::awaiting(const std::weak_ptr<ControlConnection>& weak,
                                                               uint64_t ticket) {
    auto self = weak.lock();
    const bool waits = self && self->fd_ >= 0 && self->pending_ && self->pending_->ticket == ticket;
    return waits ? self : nullptr;
}

std::function<void(Result<json>)> ControlConnection::answer_later(const RpcRequest& request) {
    return [weak = weak_from_this(), id = request.id, ticket = begin_request(false)](Result<json> result) {
        const auto self = awaiting(weak, ticket);
        if (!self) return;
        self->pending_.reset();
        if (result)
            self->answer(id, *result);
        else
            self->answer_error(id, result.error());
        self->advance();
    };
}

void ControlConnection::answer(uint64_t request, const json& result, bool is_counted) {
    std::string bytes;
    const bool readable = fits_in_message(result, answer_limits);
    if (readable) bytes = encode(RpcResponse{request, std::nullopt, result});
    is_counted = is_counted && !caller_.sees_all;
    const size_t most = is_counted ? host_.options().output_bytes : answer_limits.message_bytes;
    if (!readable || bytes.size() > most)
        return answer_error(request, {ErrorCode::limit, "the answer is too long to be sent", ""});
    if (is_counted && bytes.size() > small_answer_bytes) {
        if (!host_.reserve_output(caller_, bytes.size()))
            return answer_error(request, {ErrorCode::busy, "too many long answers are being sent", "try again"});
        reserved_ += bytes.size();
    }
    write(bytes);
}

void ControlConnection::answer_error(uint64_t request, Error error) {
    write(encode(RpcResponse{request, std::move(error), nullptr}));
}

void ControlConnection::write(std::string_view bytes) {
    if (fd_ < 0) return;
    if (unsent_bytes() == 0) output_due_ = Clock::now() + host_.options().stall;
    output_.append(bytes);
}

void ControlConnection::send_output() {
    while (fd_ >= 0 && unsent_bytes() > 0) {
        const ssize_t sent = send(fd_, output_.data() + output_sent_, unsent_bytes(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) return close();
        output_sent_ += static_cast<size_t>(sent);
        output_due_ = Clock::now() + host_.options().stall;
    }
    if (unsent_bytes() == 0) {
        output_ = {};  // of a long answer nothing is kept
        host_.release_output(caller_, std::exchange(reserved_, 0));
    } else if (output_sent_ > output_low_water) {
        output_.erase(0, output_sent_);
    } else {
        return;
    }
    output_sent_ = 0;
}

void ControlConnection::update_events() {
    // While a request is answered the next waits where it is: the worker that was handed the connection has it alone.
    const uint32_t in = is_free() && !input_ended_ && !resuming_ ? EPOLLIN : 0u;
    const uint32_t out = unsent_bytes() > 0 ? EPOLLOUT : 0u;
    host_.loop().set_io_events(io_, in | out);
}

void ControlConnection::refuse(const Error& error) {
    if (fd_ < 0 || closing_) return;
    host_.log_refusal(caller_, error.message);
    answer_error(0, error);
    closing_ = true;
    advance();
}

void ControlConnection::evict(const Error& why) {
    const auto self = shared_from_this();
    if (!pending_ || !pending_->handed_over) refuse(why);
    close();
}

void ControlConnection::check_stalls(Clock::time_point now) {
    if (unsent_bytes() > 0 && now >= output_due_) {
        host_.log_refusal(caller_, "does not read its answers");
        return close();
    }
    if (closing_) return;
    if (!greeted_ && now >= hello_due_) return refuse({ErrorCode::deadline, "no hello arrived in time", ""});
    if (message_due_ != Clock::time_point{} && now >= message_due_ && is_free() && !resuming_)
        return refuse({ErrorCode::deadline, "the rest of a message did not arrive in time", ""});
}

/// A Unix socket closed with unread input resets the connection, and the client could lose the answer to it.
void ControlConnection::discard_input() {
    std::array<char, read_bytes> buffer;
    for (size_t discarded = 0; discarded < most_discarded_bytes;) {
        const ssize_t size = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (size <= 0) return;
        discarded += static_cast<size_t>(size);
    }
}

void ControlConnection::close() {
    if (fd_ < 0) return;
    const auto self = shared_from_this();
    stream_.reset();
    footprint_.reset();
    host_.release_output(caller_, std::exchange(reserved_, 0));
    pump_.reset();
    io_.reset();
    resume_.reset();
    if (closing_) discard_input();
    close_socket();
    host_.on_closed(*this);
}

void ControlConnection::close_socket() {
    // A worker that answers has a descriptor of its own, and one that was taken over may have kept it.
    shutdown(fd_, SHUT_RDWR);
    pending_.reset();
    ::close(std::exchange(fd_, -1));
}

}  // namespace ingero
