// A record is never left in its ring while the reader sleeps, however close to its falling asleep it is written.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "daemon/ingerod/probes/calibration.h"
#include "daemon/ingerod/probes/call_probes.h"
#include "tests/integration/calibrated_site.h"
#include "tests/support/daemon.h"

using namespace ingero;
using namespace ingero::test;

namespace {

constexpr int calls = 40'000;
constexpr int only_a_hang_ms = 60'000;

/// Up to some 20 µs, so that a call and the reader's falling asleep meet at any distance.
void spin(std::mt19937& random) {
    for (uint32_t left = random() % 8'192; left != 0; --left) __asm__ volatile("");
}

TEST(WakeUp, comes_for_a_record_that_is_written_while_the_reader_falls_asleep) {
    if (const std::string why = why_no_bpf(); !why.empty()) GTEST_SKIP() << why;
    KernelFeatures features;
    auto probes = CallProbes::load(features);
    ASSERT_TRUE(probes) << probes.error().message;
    const auto function = find_calibrated_function();
    ASSERT_TRUE(function) << function.error().message;
    const ProbeSite site = calibrated_site(*function);
    std::atomic<int> seen = 0;
    (*probes)->set_record_callback([&](std::span<const std::byte> record) {
        uint32_t type = 0;
        memcpy(&type, record.data(), sizeof(type));
        if (type == INGERO_RECORD_CALL || type == INGERO_RECORD_CALL_WAIT) ++seen;
    });
    const auto attached = (*probes)->attach(function->file.get(), {&site, 1});
    ASSERT_TRUE(attached) << attached.error().message;

    std::atomic<bool> hangs = false;
    std::thread caller([&] {
        std::mt19937 random(1);
        for (int i = 0; i < calls && !hangs; ++i) {
            spin(random);
            ingero_calibrated_call();
            for (int known = seen; known <= i && !hangs; known = seen) seen.wait(known);
        }
    });
    std::mt19937 random(2);
    while (seen < calls) {
        pollfd wake{(*probes)->wake_fd(), POLLIN, 0};
        poll(&wake, 1, 0);  // as after a sleep that no record ended: nothing is left of the wake-up before
        spin(random);
        (*probes)->announce_sleep();
        const int before = seen;
        if ((*probes)->consume() == 0 && poll(&wake, 1, only_a_hang_ms) == 0) {
            hangs = true;
            (*probes)->consume();
            ADD_FAILURE() << "call " << before + 1 << " lay in its ring";
            if (seen == before) ++seen;
        }
        if (seen != before) seen.notify_one();
        if (hangs) break;
    }
    caller.join();
}

}  // namespace
