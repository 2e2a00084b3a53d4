// Calls into the kernel that somebody else can hold up for as long as they like, such as a look at a process's memory
// while it executes a program, or at a file whose server is gone: made by a thread of their own, which is left behind
// where it does not come back in time.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/base/mutex.h"
#include "daemon/ingerod/limits/shares.h"

namespace ingero {

struct BoundedCallsLimits {
    std::chrono::milliseconds patience{500};      ///< with a call
    std::chrono::milliseconds patience_late{20};  ///< once several threads are left behind, or a user's time is used up
    size_t late = 4;                              ///< so many
    size_t left_behind = 256;                     ///< threads at most; from then on no call is made
    size_t left_behind_of_user = 2;               ///< then no process of the user's is asked about
    size_t left_behind_of_users_files = 16;       ///< on one file system; then no file of the user's there
    static constexpr uint64_t held_up_s = 5;      ///< that calls about a user's processes may take in all
    uint64_t held_up_us = held_up_s * 1'000'000;
    uint64_t held_up_period_ns = 20'000;  ///< and then so long for each us
};

/// What a call is about.
struct Subject {
    Subject(uint32_t pid) : number(pid) {}
    Subject(uint64_t device, uint64_t inode) : place(device), number(inode) {}
    auto operator<=>(const Subject&) const = default;

    uint64_t place = 0;  ///< of a file its device, which its server may hold up; 0: a process
    uint64_t number = 0;
};

class BoundedCalls {
  public:
    explicit BoundedCalls(const BoundedCallsLimits& limits = {});
    ~BoundedCalls();  ///< waits for nobody: threads left behind end with their call, or with the program

    /// What `call` returns; nullopt where it took too long, or was not made because an earlier one about the same has
    /// not come back, or too many about its user's processes, or the user's files of one file system, have not. What a
    /// call that is given up uses must be its own.
    template <class Call>
    auto run(const Subject& subject, uint32_t uid, Call call) -> std::optional<decltype(call())> {
        auto result = std::make_shared<std::optional<decltype(call())>>();
        if (!make(subject, uid, [result, call = std::move(call)] { *result = call(); })) return std::nullopt;
        return std::move(*result);
    }

    size_t left_behind() const;

  private:
    struct Shared;
    bool make(const Subject& subject, uint32_t uid, std::function<void()> call);

    BoundedCallsLimits limits_;
    Mutex caller_;                                   ///< one at a time
    RateShares held_up_ INGERO_GUARDED_BY(caller_);  ///< in us
    std::shared_ptr<Shared> shared_;
};

}  // namespace ingero
