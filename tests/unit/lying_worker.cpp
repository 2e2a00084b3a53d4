// A worker that was taken over: lying-worker SCRIPT LOG [what a worker is started with...]. It answers each request
// with the next line of the script, whatever was asked, and logs what it was asked, with the path of the descriptor
// that came along. A line is {"result": ...}, where it may also have "id", said in place of the request's, and "times";
// with "garbage", bytes, so much of what is no answer goes to the connection that came along before.
#include <unistd.h>

#include <fstream>

#include "daemon/worker/channel.h"

using namespace ingero;
using nlohmann::json;

namespace {

std::string path_of(int fd) {
    char path[4096];
    const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path));
    return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    std::ifstream script(argv[1]);
    std::ofstream log(argv[2], std::ios::app);
    Channel channel(worker_socket_fd);
    if (!channel.send(encode(RpcNotification{worker_ready, json::array()}))) return 1;
    for (;;) {
        auto request = channel.receive();
        if (!request || !*request) return 0;
        const RpcRequest& asked = (*request)->message;
        log << json{{"method", asked.method}, {"params", asked.params}, {"file", path_of((*request)->fd.get())}}
            << std::endl;
        std::string line;
        if (!std::getline(script, line)) continue;
        const json says = json::parse(line);
        const std::string noise(1 << 16, '\xc1');
        for (int64_t left = says.value("garbage", int64_t{0}); left > 0; left -= 1 << 16)
            if (!Channel((*request)->fd.get()).send(noise)) break;
        RpcResponse response;
        response.id = says.value("id", asked.id);
        response.result = says.at("result");
        std::string bytes;
        for (int i = 0; i < says.value("times", 1); ++i) bytes += encode(response);
        if (!channel.send(bytes)) return 0;
    }
}
