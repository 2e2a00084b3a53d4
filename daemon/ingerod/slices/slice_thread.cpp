#include "daemon/ingerod/slices/slice_thread.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/model/time.h"
#include "daemon/ingerod/probes/attach/in_parallel.h"

namespace ingero {

namespace {

constexpr uint64_t retry_after_ns = 1'000'000'000;
/// After a longer time nothing says that it was like the slice: what was called then is not known.
constexpr uint64_t max_stands_for_ns = 5'000'000'000;
constexpr unsigned max_permille = 200;
/// As long at least as the kernel side has IN_SLICES_NS, and a slice may be away.
constexpr uint64_t known_for_ns = 10'000'000'000;

template <class T>
void store(T& word, T value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

struct Newcomers {
    bool any = false;       ///< something is in slices that was seen in full
    bool of_known = false;  ///< and is of a process of which something else was in slices
};

std::set<ProcessKey> processes_in_slices(const std::vector<SlicedFile>& files) {
    std::set<ProcessKey> processes;
    for (const SlicedFile& file : files)
        for (const OwnLink& one : file.processes)
            if (!one.sliced.empty()) processes.insert(one.process);
    return processes;
}

/// Known are processes that are or were in slices not long ago: the kernel side takes their threads for such that still
/// are.
Newcomers find_newcomers(const std::vector<SlicedFile>& files, const std::vector<SlicedFile>& before,
                         const std::set<ProcessKey>& known_processes) {
    std::set<std::pair<const HotSites*, OwnLink>> known;
    for (const SlicedFile& file : before)
        for (const OwnLink& one : file.processes)
            if (!one.sliced.empty()) known.emplace(file.sites.get(), one);
    Newcomers newcomers;
    for (const SlicedFile& file : files)
        for (const OwnLink& one : file.processes) {
            if (one.sliced.empty() || known.contains({file.sites.get(), one})) continue;
            newcomers.any = true;
            newcomers.of_known = newcomers.of_known || known_processes.contains(one.process);
        }
    return newcomers;
}

void sleep_until(uint64_t time_ns) {
    const timespec until{static_cast<time_t>(time_ns / 1'000'000'000), static_cast<long>(time_ns % 1'000'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
}

}  // namespace

SliceThread::SliceThread(ingero_slice& slice)
    : slice_(slice), random_(std::random_device()()), thread_([this] { work(); }) {
    pthread_setname_np(thread_.native_handle(), "ingerod-slices");
}

SliceThread::~SliceThread() {
    {
        const Lock lock(mutex_);
        ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

uint64_t SliceThread::set(std::vector<SlicedFile> files) {
    const Lock lock(mutex_);
    if (files == wanted_) return number_;
    wanted_ = std::move(files);
    changed_.notify_one();
    return ++number_;
}

void SliceThread::set_share(unsigned permille) {
    const Lock lock(mutex_);
    permille_ = std::min(permille, max_permille);
}

SliceThread::Figures SliceThread::figures() const {
    const Lock lock(mutex_);
    return figures_;
}

// Once in each period, at random: no rhythm of a program's decides what is seen of it. Within a quarter: what falls out
// of a window at one end, since its slice is beyond, then mostly comes in at the other.
uint64_t SliceThread::next_at(uint64_t after_ns) {
    const uint64_t period = after_ns / period_ns + 1;
    return period * period_ns + random_() % (period_ns / 4);
}

void SliceThread::work() {
    uint64_t next_ns = 0;
    Lock lock(mutex_);
    bool is_slices_turn = false;  // once something else was done: where that takes long there is always more to do
    while (!ends_) {
        const uint64_t now_ns = monotonic_now_ns();
        const bool is_troubled = !figures_.trouble.empty();
        const bool is_due = !now_.empty() && now_ns >= next_ns;
        if ((figures_.applied != number_ || (is_troubled && now_ns >= retry_ns_)) && !(is_due && is_slices_turn)) {
            is_slices_turn = true;
            const uint64_t number = number_;
            const std::vector<SlicedFile> files = wanted_;
            lock.unlock();
            std::string trouble = apply(files, next_ns);
            lock.lock();
            figures_.applied = number;
            say(std::move(trouble));
        } else if (now_.empty() && !is_troubled) {
            changed_.wait(lock);
        } else if (now_.empty() || now_ns < next_ns) {
            const uint64_t until_ns = now_.empty() ? retry_ns_ : next_ns;
            const std::chrono::nanoseconds left(until_ns > now_ns ? until_ns - now_ns : 0);
            changed_.wait_until(lock, std::chrono::steady_clock::now() + left);
        } else {
            // Half of the budget: the other is what calls cost that are always recorded.
            const uint64_t length_ns = period_ns / 2000 * permille_;
            lock.unlock();
            double share = 0;
            is_slices_turn = false;
            std::string trouble = make_slice(length_ns, share);
            next_ns = next_at(monotonic_now_ns());
            lock.lock();
            ++figures_.slices;
            if (share != 0) figures_.share = share;
            if (!trouble.empty() && !is_troubled) say(std::move(trouble));
        }
    }
}

void SliceThread::say(std::string trouble) {
    figures_.trouble = std::move(trouble);
    retry_ns_ = monotonic_now_ns() + retry_after_ns;
}

// What cannot be is tried again; until then a process stays as it was, and its time in slices begins when it comes into
// them.
std::string SliceThread::apply(const std::vector<SlicedFile>& files, uint64_t& ret_next_ns) {
    std::string trouble;
    std::vector<SlicedFile> next;
    const auto has = [](const std::vector<SlicedFile>& list, const SlicedFile& file) {
        return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.sites == file.sites; });
    };
    for (const SlicedFile& file : now_) {
        if (has(files, file)) continue;
        if (const auto done = file.sites->attach_to_all(); !done) {
            trouble = done.error().message;
            next.push_back(file);
        }
    }
    for (const SlicedFile& file : files) {
        const auto done = file.sites->attach_to(file.processes);
        if (!done) trouble = done.error().message;
        if (done || has(now_, file)) next.push_back({file.sites, file.sites->own()});
    }
    // Up to here they were seen in full. How many calls one of their first slice stands for is a guess: let that be of
    // a short time. What a process has in slices it has since one time: rather too few calls than some twice.
    const uint64_t now_ns = monotonic_now_ns();
    std::erase_if(left_, [&](const auto& one) { return now_ns - one.second > known_for_ns; });
    std::set<ProcessKey> known = processes_in_slices(now_);
    for (const ProcessKey& process : known) left_[process] = now_ns;
    for (const ProcessKey& process : processes_in_slices(next)) {
        if (left_.contains(process)) known.insert(process);
        left_.erase(process);
    }
    if (const Newcomers newcomers = find_newcomers(next, now_, known); newcomers.any) {
        ret_next_ns = all_seen_ns_ = now_ns;
        if (now_.empty() || newcomers.of_known) last_close_ns_ = all_seen_ns_;
    }
    now_ = std::move(next);
    return trouble;
}

// What could not be attached to is left out. Returns why; sets the share of the time that its calls are of.
std::string SliceThread::make_slice(uint64_t length_ns, double& ret_share) {
    std::string trouble;
    // Each moment in which a link is there and no slice is open costs the program for nothing.
    std::vector<Result<void>> begun(now_.size());
    in_parallel(now_.size(), [&](size_t i) { begun[i] = now_[i].sites->begin_slice(); });
    for (const Result<void>& one : begun)
        if (!one) trouble = one.error().message;
    const uint64_t open_ns = monotonic_now_ns(), close_ns = open_ns + length_ns;
    const auto since = [&](uint64_t ns) { return std::min(close_ns - ns, max_stands_for_ns); };
    const uint64_t stands_for_ns = since(last_close_ns_);
    store(slice_.close_ns, uint64_t{0});
    store(slice_.stands_for_ns, stands_for_ns);
    store(slice_.stands_for_new_ns, since(std::max(last_close_ns_, all_seen_ns_)));
    store(slice_.number, slice_.number + 1);
    store(slice_.open_ns, open_ns);
    store(slice_.close_ns, close_ns);
    sleep_until(close_ns);
    last_close_ns_ = close_ns;
    in_parallel(now_.size(), [this](size_t i) { now_[i].sites->end_slice(); });
    // Of the one at once nothing follows.
    if (stands_for_ns >= period_ns / 2) ret_share = static_cast<double>(length_ns) / static_cast<double>(stands_for_ns);
    return trouble;
}

}  // namespace ingero
