// Attaches to and detaches from the hot functions of processes in slices, in a thread of its own that nobody waits for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bpf/event.h"
#include "core/base/mutex.h"
#include "daemon/ingerod/probes/attach/hot_sites.h"

namespace ingero {

/// With at least one process in slices.
struct SlicedFile {
    std::shared_ptr<HotSites> sites;
    std::set<OwnLink> processes;
    bool operator==(const SlicedFile&) const = default;
};

class SliceThread {
  public:
    /// `slice` must outlive it.
    explicit SliceThread(ingero_slice& slice);
    /// What was attached to for each process stays so: the files are to be let go too.
    ~SliceThread();

    /// What is to be, from soon on: files that are not among them are attached to for whoever maps them. With an empty
    /// list nothing is in slices.
    /// Returns the number by which Figures::applied says that it was done.
    uint64_t set(std::vector<SlicedFile> files);
    /// How long a slice is for each second; from the next one on.
    void set_share(unsigned permille);

    struct Figures {
        uint64_t applied = 0;  ///< the latest of set() that was done, or tried
        uint64_t slices = 0;   ///< that were open
        double share = 0;      ///< of the time, as of late
        std::string trouble;   ///< why what is to be is not; empty: it is
    };
    Figures figures() const;

    static constexpr uint64_t period_ns = 1'000'000'000;

  private:
    void work();
    /// With a process that was in no slice yet, the next one is at once.
    std::string apply(const std::vector<SlicedFile>& files, uint64_t& ret_next_ns);
    std::string make_slice(uint64_t length_ns, double& ret_share);
    void say(std::string trouble) INGERO_REQUIRES(mutex_);
    uint64_t next_at(uint64_t after_ns);

    ingero_slice& slice_;
    std::mt19937_64 random_;
    // Of the thread.
    std::vector<SlicedFile> now_;
    uint64_t last_close_ns_ = 0;
    uint64_t all_seen_ns_ = 0;             ///< up to then whoever came last was seen in full
    std::map<ProcessKey, uint64_t> left_;  ///< processes that were in slices, and when that ended

    mutable Mutex mutex_;
    Condition changed_;
    std::vector<SlicedFile> wanted_ INGERO_GUARDED_BY(mutex_);
    uint64_t number_ INGERO_GUARDED_BY(mutex_) = 0;  ///< of `wanted_`
    bool ends_ INGERO_GUARDED_BY(mutex_) = false;
    unsigned permille_ INGERO_GUARDED_BY(mutex_) = 0;
    uint64_t retry_ns_ INGERO_GUARDED_BY(mutex_) = 0;
    Figures figures_ INGERO_GUARDED_BY(mutex_);

    std::thread thread_;
};

}  // namespace ingero
