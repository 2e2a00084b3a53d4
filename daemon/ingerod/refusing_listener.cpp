#include "daemon/ingerod/refusing_listener.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

namespace ingero {

namespace {

constexpr int accepts_per_turn = 16;
constexpr uint64_t accept_pause_us = 1'000'000;

}  // namespace

RefusingListener::RefusingListener(EventLoop& loop, int listening_fd, std::string name)
    : loop_(loop), fd_(listening_fd), name_(std::move(name)) {
    fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
    wait_for_clients();
}

void RefusingListener::wait_for_clients() {
    source_ = loop_.add_io(fd_.get(), EPOLLIN, [this](uint32_t) { refuse(); });
}

void RefusingListener::refuse() {
    for (int i = 0; i < accepts_per_turn; ++i) {
        const UniqueFd client(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!client) {
            // A client that cannot be taken stays in the backlog and would keep the loop spinning.
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                source_.reset();
                retry_ = loop_.add_timer(accept_pause_us, [this] { wait_for_clients(); });
            }
            return;
        }
        if (!std::exchange(told_, true)) spdlog::warn("clients come to the {} socket, which is not served yet", name_);
    }
}

}  // namespace ingero
