// ingero-worker: answers requests on one socket, in a sandbox. Started by ingerod, or by ingeroctl for a copied store;
// by ingerod for an AI client too, with which it then speaks MCP.
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/sql/sql.h"
#include "core/wire/value.h"
#include "daemon/worker/channel.h"
#include "daemon/worker/mcp_client.h"
#include "daemon/worker/requests.h"
#include "daemon/worker/sandbox.h"

namespace ingero {
namespace {

/// In which a client reads nothing of its answer.
constexpr int client_stall_ms = 10'000;

struct Arguments {
    int fd = -1;
    std::string store;
    std::string node;
    uint64_t memory_bytes = 512ULL << 20;
    bool checked = false;  ///< the daemon holds the store's lock, and has read all of its pages
    bool mcp = false;
    std::optional<uint32_t> uid;
};

template <class T>
bool parse(std::string_view text, T& ret_number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret_number);
    return error == std::errc() && end == text.data() + text.size();
}

bool parse_arguments(int argc, char** argv, Arguments& ret_arguments) {
    const option options[] = {{"fd", required_argument, nullptr, 'f'},   {"store", required_argument, nullptr, 's'},
                              {"checked", no_argument, nullptr, 'k'},    {"memory", required_argument, nullptr, 'm'},
                              {"node", required_argument, nullptr, 'n'}, {"mcp", no_argument, nullptr, 'c'},
                              {"uid", required_argument, nullptr, 'u'},  {nullptr, 0, nullptr, 0}};
    for (int which = 0; (which = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
        if (which == 'f' && !parse(optarg, ret_arguments.fd)) return false;
        if (which == 'm' && !parse(optarg, ret_arguments.memory_bytes)) return false;
        if (which == 's') ret_arguments.store = optarg;
        if (which == 'k') ret_arguments.checked = true;
        if (which == 'n') ret_arguments.node = optarg;
        if (which == 'c') ret_arguments.mcp = true;
        if (which == 'u' && !parse(optarg, ret_arguments.uid.emplace())) return false;
        if (which == '?') return false;
    }
    return optind == argc && ret_arguments.fd >= 0;
}

int complain(const Error& error) {
    std::fprintf(stderr, "ingero-worker: %s\n", error.message.c_str());
    return 1;
}

/// All of it, as fast as the client reads: the daemon ends this where that takes too long in all.
Result<void> write_answer(int connection, std::string_view bytes) {
    // The only number that the sandbox lets a worker write to.
    const UniqueFd output(dup3(connection, worker_output_fd, O_CLOEXEC));
    while (output && !bytes.empty()) {
        const ssize_t sent = ::send(output.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<size_t>(sent));
        } else if (errno == EAGAIN) {
            // Where its own socket ends, the daemon is gone, or lets this client go.
            std::array<pollfd, 2> events{pollfd{output.get(), POLLOUT, 0}, pollfd{worker_socket_fd, POLLRDHUP, 0}};
            if (poll(events.data(), events.size(), client_stall_ms) == 0)
                return fail(ErrorCode::deadline, "the client does not read its answer");
            if ((events[1].revents & (POLLRDHUP | POLLHUP)) != 0)
                return fail(ErrorCode::internal, "the daemon is gone");
        } else if (errno != EINTR) {
            break;
        }
    }
    if (!bytes.empty()) return fail(ErrorCode::bad_request, "the client has hung up");
    return {};
}

Result<void> answer_daemon(Channel& channel, RpcResponse answer) {
    std::string bytes = encode(answer);
    if (bytes.size() > worker_rpc_limits.message_bytes) {
        answer.error = too_large();
        bytes = encode(answer);
    }
    return channel.send(bytes);
}

/// The client's id of the request, where the worker is to answer a client.
std::optional<uint64_t> take_client(RpcRequest& request) {
    const auto found = request.params.find("answer_to");
    if (found == request.params.end() || !found->is_number_unsigned()) return std::nullopt;
    const auto id = found->get<uint64_t>();
    request.params.erase(found);
    return id;
}

/// Answers the client, and then the daemon, which learns only that and how.
Result<void> answer_client(Channel& channel, RpcResponse answer, uint64_t client, UniqueFd connection) {
    RpcResponse done;
    done.id = std::exchange(answer.id, client);
    if (!answer.error && !fits_in_message(answer.result, answer_limits)) answer.error = too_large();
    std::string bytes = encode(answer);
    if (bytes.size() > answer_limits.message_bytes) {
        answer.error = too_large();
        bytes = encode(answer);
    }
    if (answer.error) done.result = std::string(to_string(answer.error->code));
    answer = {};
    if (auto sent = channel.send(encode(RpcNotification{worker_answers, nlohmann::json::array()})); !sent) return sent;
    if (auto written = write_answer(connection.get(), bytes); !written) done.error = written.error();
    connection.reset();
    bytes = {};
    malloc_trim(0);  // before the daemon looks at what this worker needs
    return channel.send(encode(done));
}

Result<void> serve(Channel& channel, RequestHandler& handler) {
    if (auto sent = channel.send(encode(RpcNotification{worker_ready, nlohmann::json::array()})); !sent) return sent;
    for (;;) {
        auto request = channel.receive();
        if (!request) return tl::unexpected(request.error());
        if (!*request) return {};
        const auto client = take_client((*request)->message);
        UniqueFd fd = std::move((*request)->fd);
        RpcResponse answer = handler.answer((*request)->message, client ? -1 : fd.get());
        request->reset();
        if (!client) fd.reset();  // whoever has the answer finds nothing held
        const auto sent = client ? answer_client(channel, std::move(answer), *client, std::move(fd))
                                 : answer_daemon(channel, std::move(answer));
        if (!sent) return sent;
        malloc_trim(0);  // an idle worker should cost what it needs, not what its largest query needed
    }
}

int run(int argc, char** argv) {
    const int parent = getppid();
    Arguments arguments;
    if (!parse_arguments(argc, argv, arguments))
        return complain({ErrorCode::bad_request,
                         "usage: ingero-worker --fd N [--store DIR [--checked]] [--memory BYTES] "
                         "[--node NAME] [--mcp [--uid N]]; ingerod starts it",
                         ""}),
               2;
    if (auto done = keep_only_socket(arguments.fd, arguments.mcp); !done) return complain(done.error());
    // Local time is formatted in answers; the zone's file cannot be opened later.
    tzset();
    prepare_sqlite();
    signal(SIGXFSZ, SIG_IGN);  // a copy that grows too large is an error
    Result<std::unique_ptr<StoreReader>> store = fail(ErrorCode::not_found, "this worker has no store");
    if (!arguments.store.empty())
        store = StoreReader::open(arguments.store, arguments.checked ? PageCheck::headers : PageCheck::all);
    if (auto done = enter_sandbox(arguments.memory_bytes, parent, arguments.mcp); !done) return complain(done.error());

    RequestHandler handler(arguments.node, arguments.memory_bytes, std::move(store));
    if (arguments.mcp) {
        if (auto done = serve_mcp_client(handler, arguments.uid); !done) return complain(done.error());
        return 0;
    }
    Channel channel(worker_socket_fd);
    if (auto done = serve(channel, handler); !done) return complain(done.error());
    return 0;
}

}  // namespace
}  // namespace ingero

int main(int argc, char** argv) {
    // Past exit handlers: what coverage and sanitizer run times do there needs calls that the sandbox refuses.
    _exit(ingero::run(argc, argv));
}
