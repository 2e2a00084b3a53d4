// Ways for a thread to lose time on purpose, each for one true reason: what a tracer reports as the reason of a wait is
// held against them.
#pragma once

#include <cstdint>
#include <string_view>

namespace ingero::standin {

enum class Delay : uint8_t {
    spin,    ///< on the CPU
    yield,   ///< sched_yield until the time is over
    sleep,   ///< clock_nanosleep, a cancellation point
    timer,   ///< read of a timerfd
    poll,    ///< poll for what another thread writes
    pipe,    ///< read of it
    socket,  ///< recv of it
    futex,   ///< a mutex that another thread holds
    child,   ///< waitpid for a child that sleeps
    disk,    ///< O_DIRECT reads of the scratch file
    fsync,   ///< write to the scratch file and fsync
    major,   ///< page faults on the scratch file, with its pages dropped from the cache
};

struct DelayKind {
    std::string_view name;
    Delay delay;
    double unit;  ///< of the amount in a rule: microseconds to ns, KiB to bytes
};

/// Null for a name that is none.
const DelayKind* find_delay(std::string_view name);

/// Loses the time: `amount` is in ns, for disk, fsync and major in bytes. True if the thread gave up the CPU for it.
bool delay(Delay kind, uint64_t amount);

/// Makes the scratch file and starts the helper thread, which the first delay that needs them would do otherwise.
void prepare_delays();

/// In a forked child: the helper thread is not there any more.
void forget_helper();

}  // namespace ingero::standin
