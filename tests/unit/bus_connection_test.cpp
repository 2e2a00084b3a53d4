// What comes of a connection to the bus that cannot even be begun.
#include "daemon/ingerod/bus/bus_connection.h"

#include <gtest/gtest.h>
#include <seccomp.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace ingero {
namespace {

/// From here on this thread starts no other, as where TasksMax= of the unit is reached.
bool forbid_threads() {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == nullptr) return false;
    bool loaded = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAGAIN), SCMP_SYS(clone), 0) == 0 &&
                  seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAGAIN), SCMP_SYS(clone3), 0) == 0;
    loaded = loaded && seccomp_load(filter) == 0;
    seccomp_release(filter);
    return loaded;
}

TEST(ABusConnection, IsTriedAgainWhereNoThreadIsLeftForIt) {
    constexpr uint64_t waiting_us = 60'000'000;
    bool forbidden = false, up = true;
    int retries = 0;
    std::thread([&] {
        forbidden = forbid_threads();
        if (!forbidden) return;
        EventLoop loop;
        const BusConnection bus(loop, "io.ingero.Test", std::chrono::milliseconds(1),
                                {.connected = [] {}, .lost = [] {}, .drained = [] {}});
        while (retries < 3 && sd_event_run(loop.get(), waiting_us) > 0) ++retries;
        up = bus.up();
    }).join();
    if (!forbidden) GTEST_SKIP() << "needs seccomp";
    EXPECT_EQ(retries, 3);
    EXPECT_FALSE(up);
}

}  // namespace
}  // namespace ingero
