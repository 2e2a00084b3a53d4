// What of a rank's GPU, or of where it runs, is worse than at the other ranks of its host.
#include "core/diagnosis/evidence/rank_conditions.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/store/rows/state_names.h"

namespace ingero::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t second = 1'000'000'000;
constexpr double power_cap = 0x4, hw_thermal = 0x40;

/// Four ranks, each on its GPU, measured each second for 20 s, and what is wrong with that of rank 2.
class RankConditions : public testing::Test {
  protected:
    RankConditions() {
        for (uint32_t rank = 0; rank < 4; ++rank) {
            Process process;
            process.key = {100 + rank, 1 + rank};
            process.cpus_allowed = "0-63";
            process.mems_allowed = "0-1";
            processes_.push_back(process);
        }
    }

    using Change = std::function<void(StateRow&, uint64_t number)>;

    static void set(StateRow& row, std::string_view name, double value) {
        for (auto& [known, old] : row.values)
            if (known == name) old = value;
    }
    static void remove(StateRow& row, std::string_view name) {
        std::erase_if(row.values, [&](const auto& one) { return one.first == name; });
    }
    static Change is(std::string_view name, double value) {
        return [=](StateRow& row, uint64_t) { set(row, name, value); };
    }

    /// `of_two` changes rows of rank 2's GPU, `of_all` of all.
    std::vector<StateRow> rows(const Change& of_two, const Change& of_all = {}) const {
        std::vector<StateRow> rows;
        for (uint64_t number = 0; number < 20; ++number) {
            for (uint32_t rank = 0; rank < 4; ++rank) {
                StateRow row;
                row.time_ns = (100 + number) * second;
                row.source = "gpu:GPU-" + std::to_string(rank);
                row.values = {{"max_sm_clock_mhz", 1'980},    {"gpu_index", rank},      {"throttle_reasons", 0},
                              {"sm_clock_mhz", 1'980},        {"pcie_width", 16},       {"pcie_max_width", 16},
                              {"nvlinks_active", 18},         {"nvlink_crc_errors", 5}, {"ecc_corrected", 7},
                              {"numa_node", rank < 2 ? 0 : 1}};
                row.texts = {{"processes", "[[" + std::to_string(100 + rank) + ",1024]]"},
                             {"local_cpus", rank < 2 ? "0-15,32-47" : "16-31,48-63"}};
                if (of_all) of_all(row, number);
                if (rank == 2 && of_two) of_two(row, number);
                rows.push_back(std::move(row));
            }
        }
        return rows;
    }

    std::vector<std::string> found(const std::vector<StateRow>& rows, Window late = {100 * second, 119 * second}) {
        std::vector<GpuSample> samples;
        for (const StateRow& row : rows)
            if (auto sample = gpu_sample(row)) samples.push_back(std::move(*sample));
        const std::vector<ProcessKey> others = {processes_[0].key, processes_[1].key, processes_[3].key};
        conditions_ = rank_conditions(rank_, others, late, &cause_, gpu_states(samples), KnownProcesses(processes_));
        std::vector<std::string> texts;
        for (const RankCondition& one : conditions_) {
            texts.push_back(one.kind + ": " + one.text);
            EXPECT_FALSE(one.fix.empty());
        }
        return texts;
    }
    std::vector<std::string> found(const Change& of_two, const Change& of_all = {}) {
        return found(rows(of_two, of_all));
    }

    std::vector<Process> processes_;
    ProcessKey rank_{102, 3};
    MeanwhilePart cause_{"device-wait", "cudaStreamSync", 0, 1};
    std::vector<RankCondition> conditions_;
};

TEST_F(RankConditions, RanksThatAreAlikeHaveNone) {
    EXPECT_THAT(found(Change()), IsEmpty());
}

TEST_F(RankConditions, AGpuThatThrottlesIsSlowerThanThoseOfOthers) {
    const auto hot = [](StateRow& row, uint64_t) {
        set(row, "throttle_reasons", hw_thermal);
        set(row, "sm_clock_mhz", 990);
    };
    const std::string text =
        "throttling: its GPU 2, throttled (hw_thermal_slowdown), ran at 50 % of its highest clock (990 MHz), those of "
        "other ranks at 100 %";
    EXPECT_THAT(found(hot), ElementsAre(text));
    EXPECT_THAT(conditions_[0].fix, HasSubstr("too hot"));
    // At the power limit are all; this one is the slowest.
    EXPECT_THAT(found(hot, is("throttle_reasons", power_cap)), ElementsAre(text));
    // One of another model, as fast as it can be.
    EXPECT_THAT(found(hot,
                      [](StateRow& row, uint64_t) {
                          set(row, "sm_clock_mhz", 1'400);
                          set(row, "max_sm_clock_mhz", 1'410);
                      }),
                SizeIs(1));
    EXPECT_THAT(found([](StateRow& row, uint64_t) {
                    set(row, "throttle_reasons", hw_thermal);
                    set(row, "sm_clock_mhz", 1'400);
                    set(row, "max_sm_clock_mhz", 1'410);
                }),
                IsEmpty());
}

TEST_F(RankConditions, AThrottledGpuThatIsAsFastAsOthersExplainsNothing) {
    EXPECT_THAT(found(is("throttle_reasons", hw_thermal)), IsEmpty());
    EXPECT_THAT(found({},
                      [](StateRow& row, uint64_t) {
                          set(row, "throttle_reasons", hw_thermal);
                          set(row, "sm_clock_mhz", 1'200);
                      }),
                IsEmpty());
}

// It works more than those that wait for it.
TEST_F(RankConditions, OneThatIsAtItsPowerLimitAloneIsNoReason) {
    EXPECT_THAT(found([](StateRow& row, uint64_t number) {
                    set(row, "throttle_reasons", number == 3 ? 0x24 : power_cap);
                    set(row, "sm_clock_mhz", 1'400);
                }),
                IsEmpty());
}

TEST_F(RankConditions, WithoutClocksThoseOfOthersMustNotThrottle) {
    const auto no_clocks = [](StateRow& row, uint64_t) { remove(row, "sm_clock_mhz"); };
    EXPECT_THAT(
        found(is("throttle_reasons", hw_thermal), no_clocks),
        ElementsAre("throttling: its GPU 2 was throttled (hw_thermal_slowdown), those of other ranks were not"));
    EXPECT_THAT(found({},
                      [&](StateRow& row, uint64_t) {
                          remove(row, "sm_clock_mhz");
                          set(row, "throttle_reasons", hw_thermal);
                      }),
                IsEmpty());
}

TEST_F(RankConditions, OfAShortTimeOrOfAnotherItSaysNothing) {
    const auto hot_until = [](uint64_t until) {
        return [=](StateRow& row, uint64_t number) {
            if (number >= until) return;
            set(row, "throttle_reasons", hw_thermal);
            set(row, "sm_clock_mhz", 1'200);
        };
    };
    EXPECT_THAT(found(rows(hot_until(20)), {105 * second, 106 * second}), IsEmpty()) << "one measurement";
    EXPECT_THAT(found(rows(hot_until(20)), {105 * second, 108 * second}), SizeIs(1));
    EXPECT_THAT(found(rows(hot_until(10)), {111 * second, 119 * second}), IsEmpty()) << "it had cooled down";
    EXPECT_THAT(found(rows(hot_until(9))), IsEmpty()) << "less than half of the time";
    EXPECT_THAT(found(rows(hot_until(20)), {500 * second, 510 * second}), IsEmpty());
    // Of a long time the last 25 s.
    EXPECT_THAT(found(rows(hot_until(10)), {0, 119 * second + 15 * second}), IsEmpty());
}

TEST_F(RankConditions, LinksThatAreNarrowerOrErr) {
    EXPECT_THAT(found(is("pcie_width", 4)),
                ElementsAre("pcie-link: its GPU 2 is on 4 of 16 PCIe lanes, those of other ranks on all"));
    EXPECT_THAT(found({}, is("pcie_width", 8)), IsEmpty()) << "as that of the others";
    EXPECT_THAT(found(is("nvlinks_active", 17)),
                ElementsAre("nvlink: its GPU 2 has 17 NVLinks up, those of other ranks up to 18"));
    // Idle for a moment at the end.
    EXPECT_THAT(found([](StateRow& row, uint64_t number) { set(row, "pcie_width", number == 19 ? 4 : 16); }),
                IsEmpty());
    const auto errors = [](double a_second) {
        return [=](StateRow& row, uint64_t number) { set(row, "nvlink_crc_errors", 5 + a_second * double(number)); };
    };
    EXPECT_THAT(found(errors(200)), ElementsAre("nvlink: its GPU 2 had 200 NVLink errors a second"));
    EXPECT_THAT(found(errors(2)), IsEmpty()) << "which are sent again";
}

TEST_F(RankConditions, ErrorsOfMemoryCountWhereTheyGrow) {
    const auto errors = [](double a_second) {
        return [=](StateRow& row, uint64_t number) { set(row, "ecc_corrected", 7 + a_second * double(number)); };
    };
    EXPECT_THAT(found(errors(30)),
                ElementsAre("corrected-errors: the memory of its GPU 2 had 30 corrected errors a second"));
    EXPECT_THAT(found(errors(1)), IsEmpty());
    EXPECT_THAT(found(is("ecc_corrected", 1e6)), IsEmpty());
    EXPECT_THAT(found(errors(-1e3)), IsEmpty()) << "a driver that began to count anew";
    EXPECT_THAT(found(errors(30),
                      [](StateRow& row, uint64_t) {
                          if (row.source != "gpu:GPU-2") remove(row, "ecc_corrected");
                      }),
                IsEmpty())
        << "of the others it is not known";
}

TEST_F(RankConditions, CpusAndMemoryAwayFromTheGpu) {
    processes_[2].cpus_allowed = "0-7";
    EXPECT_THAT(found(Change()), ElementsAre("cpus: it may run on CPUs 0-7 only, which are not next to its GPU 2 "
                                             "(16-31,48-63)"));
    processes_[2].cpus_allowed = "0-16";
    EXPECT_THAT(found(Change()), IsEmpty()) << "one of them is";
    processes_[2].mems_allowed = "0";
    EXPECT_THAT(found(Change()),
                ElementsAre("memory: its cpuset gives it memory of NUMA node 0 only, and its GPU 2 is at node 1"));
    // As most others are.
    processes_[0].mems_allowed = processes_[1].mems_allowed = "1";
    EXPECT_THAT(found(Change()), IsEmpty());
}

TEST_F(RankConditions, ListsThatAreNoneSayNothing) {
    for (const char* list : {"", ",", "0-", "-7", "7-0", "0-7,", "0 - 7", "all", "99999999999", "0-7;1"}) {
        processes_[2].cpus_allowed = list;
        EXPECT_THAT(found(Change()), IsEmpty()) << list;
    }
    std::string long_list = "0";
    for (int i = 0; i < 3'000; ++i) long_list += ",0";
    processes_[2].cpus_allowed = long_list;
    EXPECT_THAT(found(Change()), IsEmpty());
}

TEST_F(RankConditions, WhichGpuIsWhoseMustBeKnown) {
    const auto hot_with = [&](const std::string& processes_of_all) {
        return found(is("pcie_width", 4), [&](StateRow& row, uint64_t) { row.texts[0].second = processes_of_all; });
    };
    EXPECT_THAT(hot_with("[]"), IsEmpty());
    EXPECT_THAT(hot_with("[[100,9],[101,9],[102,9],[103,9]]"), IsEmpty()) << "all are on all";
    // Contexts of others are small.
    auto with_small = rows(is("pcie_width", 4));
    for (StateRow& row : with_small) {
        const std::string pid = std::to_string(100 + (row.source.back() - '0'));
        row.texts[0].second = "[[100,512],[101,512],[102,512],[103,512],[" + pid + ",80000]]";
    }
    EXPECT_THAT(found(with_small), SizeIs(1));
    // Nothing is known of where the others are.
    EXPECT_THAT(found(is("pcie_width", 4),
                      [](StateRow& row, uint64_t) {
                          if (row.source != "gpu:GPU-2") row.texts[0].second = "[]";
                      }),
                IsEmpty());
    // Another rank is on it, and comes in time.
    EXPECT_THAT(found(
                    [](StateRow& row, uint64_t) {
                        set(row, "pcie_width", 4);
                        row.texts[0].second = "[[102,9],[103,9]]";
                    },
                    [](StateRow& row, uint64_t) {
                        if (row.source == "gpu:GPU-3") row.texts[0].second = "[]";
                    }),
                IsEmpty());
    // Two ranks of one process: which GPU is whose is not known.
    rank_ = processes_[3].key;
    EXPECT_THAT(found(is("pcie_width", 4)), IsEmpty());
}

TEST_F(RankConditions, AreNoReasonForWhatHasAnother) {
    processes_[2].cpus_allowed = "0-7";
    const auto kinds = [&](const std::string& kind, const std::string& name) {
        cause_ = {kind, name, 0, 1};
        found(is("pcie_width", 4));
        std::vector<std::string> kinds;
        for (const RankCondition& one : conditions_) kinds.push_back(one.kind);
        return kinds;
    };
    EXPECT_THAT(kinds("device-wait", "cudaStreamSync"), ElementsAre("pcie-link", "cpus"));
    EXPECT_THAT(kinds("own-work", "cudaMemcpy"), ElementsAre("cpus"));
    EXPECT_THAT(kinds("own-work", ""), IsEmpty()) << "between its calls";
    for (const char* other : {"lock-wait", "cpu-contention", "own-io-wait", "sleep", "network", "wait", "not-known"})
        EXPECT_THAT(kinds(other, "one"), IsEmpty()) << other;
}

TEST_F(RankConditions, ValuesThatAreNoneHarmNothing) {
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300, -1.0}) {
        found([=](StateRow& row, uint64_t number) {
            for (auto& [name, old] : row.values)
                if (number % 2 == 0) old = value;
        });
        found(rows({}, [=](StateRow& row, uint64_t) {
            for (auto& [name, old] : row.values) old = value;
            row.texts = {{"processes", "[[4294967398,1024],[-1,2],[102,18446744073709551615]]"}};
        }));
    }
}

}  // namespace
}  // namespace ingero::test
