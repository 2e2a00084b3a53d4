// Faults beside a program that feeds the stand-in's device, with what the daemon says that each cost, and what it
// really cost: against the same calls without it. For the tests of it and for bench/lost_time.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/model/result.h"

namespace ingero::test {

struct LostTimeCase {
    /// When a program burns the CPU that this one feeds its device on.
    enum class Hog : uint8_t {
        none,
        always,
        in_waits,        ///< for the device
        between_waits,   ///< from the moment the device is done: in most cycles before the wait returns
        early_in_waits,  ///< for 2 ms from the beginning of each
    };

    std::string name;
    std::string standin;  ///< its options
    uint64_t kernel_us = 0;
    Hog hog = Hog::none;
    std::string kind{};          ///< of the finding; empty: none
    bool bounds_only = false;    ///< each cycle is disturbed alike
    bool costs_nothing = false;  ///< the device works on
    uint64_t quota_us = 0;       ///< of a CPU in each 100 ms; 0: no such limit
    uint64_t works_us = 0;       ///< on the CPU between the end of a wait and the first launch
    /// Most launches are another thread's than the one that waits. Where it has a CPU of its own, only that one is the
    /// hog's.
    enum class Launcher : uint8_t { none, on_same_cpu, on_own_cpu } launcher = Launcher::none;
};
void PrintTo(const LostTimeCase& one, std::ostream* out);

std::vector<LostTimeCase> lost_time_cases();

/// Why it cannot run here; empty where it can.
std::string why_not(const LostTimeCase& one);

/// Times in ns.
struct MeasuredLoss {
    uint64_t took = 0, steps = 0;
    uint64_t undisturbed = 0;  ///< what the same calls would have taken
    uint64_t had_no_cpu = 0;   ///< by the scheduler's own account, start and end of the program among it
    uint64_t lost() const { return took > undisturbed ? took - undisturbed : 0; }

    double low = 0, told = 0, high = 0;  ///< the sums of all findings but of what the program does of itself
    double low_of_kind = 0, high_of_kind = 0;
    bool kind_found = false;
    bool kind_above_low = false;  ///< in severity
    std::string summaries{};      ///< a line each
    std::string answer{};         ///< of the daemon, whole
};

/// Runs the program traced for so many seconds. Fails the test where a part of it does.
Result<MeasuredLoss> measure_lost_time(const LostTimeCase& one, unsigned seconds);

}  // namespace ingero::test
