// ingero-worker: answers requests on one socket, in a sandbox. Started by ingerod, or by ingeroctl for a copied store;
// by ingerod for an AI client too, with which it then speaks MCP.
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "core/sql/sql.h"
#include "daemon/worker/channel.h"
#include "daemon/worker/mcp_client.h"
#include "daemon/worker/requests.h"
#include "daemon/worker/sandbox.h"

namespace ingero {
namespace {

struct Arguments {
    int fd = -1;
    std::string store;
    std::string node;
    uint64_t memory_bytes = 512ULL << 20;
    bool mcp = false;
    std::optional<uint32_t> uid;
};

template <class T>
bool parse(std::string_view text, T& ret_number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret_number);
    return error == std::errc() && end == text.data() + text.size();
}

bool parse_arguments(int argc, char** argv, Arguments& ret_arguments) {
    const option options[] = {{"fd", required_argument, nullptr, 'f'},
                              {"store", required_argument, nullptr, 's'},
                              {"memory", required_argument, nullptr, 'm'},
                              {"node", required_argument, nullptr, 'n'},
                              {"mcp", no_argument, nullptr, 'c'},
                              {"uid", required_argument, nullptr, 'u'},
                              {nullptr, 0, nullptr, 0}};
    for (int which = 0; (which = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
        if (which == 'f' && !parse(optarg, ret_arguments.fd)) return false;
        if (which == 'm' && !parse(optarg, ret_arguments.memory_bytes)) return false;
        if (which == 's') ret_arguments.store = optarg;
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

Result<void> serve(Channel& channel, RequestHandler& handler) {
    if (auto sent = channel.send(encode(RpcNotification{worker_ready, nlohmann::json::array()})); !sent) return sent;
    for (;;) {
        auto request = channel.receive();
        if (!request) return tl::unexpected(request.error());
        if (!*request) return {};
        std::string bytes = encode(handler.answer((*request)->message, (*request)->fd.get()));
        if (bytes.size() > worker_rpc_limits.message_bytes) {
            RpcResponse refusal;
            refusal.id = (*request)->message.id;
            refusal.error = Error{ErrorCode::limit, "the answer is larger than 32 MiB", "ask for a shorter window"};
            bytes = encode(refusal);
        }
        request->reset();
        if (auto sent = channel.send(bytes); !sent) return sent;
        // An idle worker should cost what it needs, not what its largest query needed.
        bytes = {};
        malloc_trim(0);
    }
}

int run(int argc, char** argv) {
    const int parent = getppid();
    Arguments arguments;
    if (!parse_arguments(argc, argv, arguments))
        return complain({ErrorCode::bad_request,
                         "usage: ingero-worker --fd N [--store DIR] [--memory BYTES] "
                         "[--node NAME] [--mcp [--uid N]]; ingerod starts it",
                         ""}),
               2;
    if (auto done = keep_only_socket(arguments.fd, arguments.mcp); !done) return complain(done.error());
    // Local time is formatted in answers; the zone's file cannot be opened later.
    tzset();
    prepare_sqlite();
    signal(SIGXFSZ, SIG_IGN);  // a copy that grows too large is an error
    Result<std::unique_ptr<StoreReader>> store = fail(ErrorCode::not_found, "this worker was given no store");
    if (!arguments.store.empty()) store = StoreReader::open(arguments.store);
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
