#include "core/diagnosis/evidence/wait_table.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "core/model/call_time.h"
#include "core/model/host_event.h"
#include "core/model/text/syscall_names.h"

namespace ingero {

namespace {

constexpr unsigned max_links = 6;
constexpr size_t max_known = 16'384;
constexpr size_t max_preemptors = 32;  ///< of one call
/// Waits looked at for one gap, on the way to whoever it comes down to.
constexpr size_t max_looked_at = 16'384;
/// Of one wait's connection; a segment that never arrives is sent some fifteen times (tcp_retries2).
constexpr size_t max_stalls_of_wait = 256;
/// Of the ports that Linux gives to who asks for a connection without naming one (ip_local_port_range).
constexpr uint16_t first_given_port = 32'768;

auto place_of(const Event& row) {
    return std::tuple(row.tgid, row.tid, row.start_ns);
}

Window within(Window time, uint64_t from_ns, uint64_t to_ns) {
    time.from_ns = std::max(time.from_ns, from_ns);
    time.to_ns = std::max(time.from_ns, std::min(time.to_ns, to_ns));
    return time;
}

/// Rows are large: their places are sorted, and each is moved once.
void sort_by_thread(std::vector<Event>& rows) {
    std::vector<uint32_t> order(rows.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return place_of(rows[a]) < place_of(rows[b]); });
    std::vector<Event> sorted;
    sorted.reserve(rows.size());
    for (const uint32_t row : order) sorted.push_back(rows[row]);
    rows = std::move(sorted);
}

uint64_t woken_ns(const Event& wait) {
    return std::min(saturating_add(wait.start_ns, wait.blocked_ns), saturating_end_ns(wait));
}

uint64_t summed_until_ns(const Event& sum) {
    return saturating_add(sum.start_ns, sum.args[1]);
}

/// Of what is spread over [from_ns, until_ns), the part within `time`.
uint64_t share_within(const Window& time, uint64_t from_ns, uint64_t until_ns, uint64_t ns) {
    const uint64_t shared = within(time, from_ns, until_ns).length_ns();
    const double length = static_cast<double>(std::max<uint64_t>(saturating_subtract(until_ns, from_ns), 1));
    return std::min(shared, static_cast<uint64_t>(static_cast<double>(ns) * (static_cast<double>(shared) / length)));
}

bool writes(const Event& wait) {
    if (Event request; request_of_wait(wait, request)) return request.op != op_block_read;
    const std::string name = syscall_name(wait.blocked_syscall);
    return name.find("sync") != std::string::npos || name.find("write") != std::string::npos || name == "fallocate" ||
           name == "ftruncate";
}

uint16_t own_port(const Event& wait) {
    return static_cast<uint16_t>(wait.stream);
}

uint16_t other_port(const Event& wait) {
    return static_cast<uint16_t>(wait.stream >> 16);
}

/// No row says which end asked for a connection, but its port is one that the system assigned, and the other's is not.
/// One that was given up has no port any more.
bool asked_for_connection(const Event& wait) {
    if (wait_detail(wait) != WaitDetail::socket) return false;
    return other_port(wait) != 0 && other_port(wait) < first_given_port &&
           (own_port(wait) >= first_given_port || own_port(wait) == 0);
}

/// For what a client may ask, as against taking what it is sent.
bool waits_for_client(const Event& wait) {
    const bool serves =
        own_port(wait) != 0 && own_port(wait) < first_given_port && other_port(wait) >= first_given_port;
    return serves && syscall_name(wait.blocked_syscall).find("send") == std::string::npos && !writes(wait);
}

void add_part(std::vector<SpentPart>& parts, Spent spent, const ProcessKey& process, uint32_t tid, const Comm& comm,
              uint64_t ns, const Event* wait) {
    if (ns == 0) return;
    auto part = std::find_if(parts.begin(), parts.end(), [&](const SpentPart& one) {
        return one.spent == spent && one.process.pid == process.pid && one.tid == tid;
    });
    if (part == parts.end()) part = parts.insert(part, {spent, process, tid, comm, 0, 0, nullptr});
    part->ns = saturating_add(part->ns, ns);
    if (wait && ns > part->longest_ns) {
        part->longest_ns = ns;
        part->longest = wait;
    }
}

}  // namespace

bool WaitTable::wants(OpId op) {
    return op == op_wait || op == op_waits_summed || op == op_retransmit;
}

void WaitTable::know(const ProcessKey& process) {
    if (process != last_known_ && known_.size() < max_known) known_.insert(last_known_ = process);
}

void WaitTable::add(const Event& event) {
    if (event.op == op_retransmit) {
        const Window time{saturating_subtract(event.start_ns, event.args[2]), event.start_ns};
        if (time.length_ns() < stall_floor_ns_) return;
        stalls_.push_back({event.tgid, {event.args[0], event.args[1]}, event.stream, time});
        if (stalls_.size() == max_waits) drop_short_stalls();
        return;
    }
    if (event.op == op_wait && is_short(event.duration_ns))
        return add_short(event.process(), event.tid, {event.start_ns, saturating_end_ns(event)});
    know(event.process());
    if (event.op != op_wait) {
        if (summed_.size() == max_waits)
            return drop(event.tgid, event.tid, {event.start_ns, summed_until_ns(event)}, event.duration_ns);
        summed_.push_back(event);
    } else {
        waits_.push_back(event);
        if (waits_.size() == max_waits) drop_short();
    }
}

void WaitTable::add_short(const ProcessKey& process, uint32_t tid, const Window& time) {
    know(process);
    drop(process.pid, tid, time, time.length_ns());
}

void WaitTable::drop(uint32_t tgid, uint32_t tid, const Window& time, uint64_t ns) {
    const uint32_t number = dropped_index_.find_or_add({tgid, tid});
    if (number == KeyIndex<ThreadKey>::none) return;
    if (number == dropped_.size()) dropped_.emplace_back();
    Dropped& dropped = dropped_[number];
    dropped.from_ns = std::min(dropped.from_ns, time.from_ns);
    dropped.until_ns = std::max(dropped.until_ns, time.to_ns);
    dropped.ns = saturating_add(dropped.ns, ns);
}

/// The shorter half, and from now on what is as short.
void WaitTable::drop_short() {
    std::vector<uint64_t> durations;
    durations.reserve(waits_.size());
    for (const Event& wait : waits_) durations.push_back(wait.duration_ns);
    const auto middle = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2);
    std::nth_element(durations.begin(), middle, durations.end());
    floor_ns_ = saturating_add(*middle, 1);
    std::erase_if(waits_, [this](const Event& wait) {
        if (wait.duration_ns >= floor_ns_) return false;
        drop(wait.tgid, wait.tid, {wait.start_ns, saturating_end_ns(wait)}, wait.duration_ns);
        return true;
    });
}

/// As drop_short(): what is dropped proves nothing.
void WaitTable::drop_short_stalls() {
    std::vector<uint64_t> lengths;
    lengths.reserve(stalls_.size());
    for (const Stall& stall : stalls_) lengths.push_back(stall.time.length_ns());
    const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
    std::nth_element(lengths.begin(), middle, lengths.end());
    stall_floor_ns_ = saturating_add(*middle, 1);
    std::erase_if(stalls_, [this](const Stall& stall) { return stall.time.length_ns() < stall_floor_ns_; });
}

void WaitTable::finish() {
    std::sort(stalls_.begin(), stalls_.end(), [](const Stall& a, const Stall& b) { return a.place() < b.place(); });
    sort_by_thread(waits_);
    sort_by_thread(summed_);
    for (const Event& sum : summed_) longest_sum_ns_ = std::max(longest_sum_ns_, sum.args[1]);
    has_throttled_ = std::any_of(waits_.begin(), waits_.end(), [](const Event& wait) { return is_throttled(wait); });
}

std::span<const Event> WaitTable::of_thread(const std::vector<Event>& rows, uint32_t tgid, uint32_t tid) const {
    const std::pair wanted(tgid, tid);
    const auto from = std::partition_point(rows.begin(), rows.end(),
                                           [&](const Event& row) { return std::pair(row.tgid, row.tid) < wanted; });
    const auto to = std::partition_point(from, rows.end(),
                                         [&](const Event& row) { return std::pair(row.tgid, row.tid) == wanted; });
    return {from, to};
}

/// Data that arrived ended a wait: only what was sent again while it lasted can have kept it waiting. A segment is sent
/// again and again until it arrives, and each row of that covers all of the time before.
uint64_t WaitTable::resent_ns(const Event& wait, const Window& time) const {
    if (wait.blocked_reason != BlockedReason::socket || wait_detail(wait) != WaitDetail::socket) return 0;
    if (waits_for_client(wait)) return 0;
    // A connection that was given up has lost its own port by the time its wait is recorded.
    const uint64_t any_own = own_port(wait) == 0 ? UINT16_MAX : 0;
    const std::array<uint64_t, 2> peer{wait.args[1], wait.args[2]};
    const auto from = std::partition_point(stalls_.begin(), stalls_.end(), [&](const Stall& one) {
        return one.place() <= std::tuple(wait.tgid, peer, wait.stream, any_own == 0 ? time.from_ns : uint64_t{0});
    });
    const auto to = std::partition_point(from, stalls_.end(), [&](const Stall& one) {
        return one.place() <= std::tuple(wait.tgid, peer, wait.stream | any_own,
                                         any_own == 0 ? std::max(woken_ns(wait), time.from_ns) : UINT64_MAX);
    });
    uint64_t ns = 0, counted_from_ns = time.to_ns;
    size_t looked_at = 0;
    for (auto stall = to; stall != from && looked_at < max_stalls_of_wait; ++looked_at) {
        --stall;
        if (stall->time.to_ns <= time.from_ns || stall->time.to_ns > woken_ns(wait)) continue;
        const Window uncounted = within({time.from_ns, counted_from_ns}, stall->time.from_ns, stall->time.to_ns);
        ns = saturating_add(ns, uncounted.length_ns());
        counted_from_ns = std::min(counted_from_ns, std::max(stall->time.from_ns, time.from_ns));
    }
    return ns;
}

WaitTable::ResentWait WaitTable::resent(const ProcessKey& process, uint32_t tid, const Window& time) const {
    ResentWait resent;
    uint64_t longest_ns = 0;
    const std::span<const Event> waits = of_thread(waits_, process.pid, tid);
    auto wait = std::partition_point(waits.begin(), waits.end(),
                                     [&](const Event& one) { return saturating_end_ns(one) <= time.from_ns; });
    for (size_t looked_at = 0; wait != waits.end() && wait->start_ns < time.to_ns && looked_at < max_looked_at;
         ++wait, ++looked_at) {
        const uint64_t ns = resent_ns(*wait, within(time, wait->start_ns, woken_ns(*wait)));
        resent.ns = saturating_add(resent.ns, ns);
        if (ns <= longest_ns) continue;
        longest_ns = ns;
        resent.longest = &*wait;
    }
    return resent;
}

/// Its own threads, and those of processes that it started, or that these started.
bool WaitTable::is_of(const ProcessKey& asker, uint32_t waker_tgid, uint64_t at_ns) const {
    constexpr unsigned max_generations = 8;
    if (waker_tgid == asker.pid) return true;
    const Process* one = processes_ ? processes_->at(waker_tgid, at_ns) : nullptr;
    for (unsigned generation = 0; one && generation < max_generations; ++generation) {
        if (one->parent_pid == asker.pid) return one->key.start_ns >= asker.start_ns;
        one = processes_->at(one->parent_pid, at_ns);
    }
    return false;
}

void WaitTable::slept(Asker& asker, const ProcessKey& process, const Comm& comm, const Event& wait, Window time,
                      unsigned depth) const {
    const auto add = [&](Spent spent) {
        add_part(asker.parts, spent, process, wait.tid, comm, time.length_ns(), &wait);
    };
    bool follow = wait.waker_kind == WakerKind::task;
    switch (wait.blocked_reason) {
        case BlockedReason::disk:
        case BlockedReason::network_fs:
        case BlockedReason::page_fault:
            return add(writes(wait) ? Spent::wrote : Spent::read);
        case BlockedReason::child:
            return add(Spent::child);
        case BlockedReason::timer:
            return add(Spent::timer);
        case BlockedReason::stopped:  // whoever let it go on did not keep it waiting
            return add(Spent::unknown);
        case BlockedReason::socket:
            if (const uint64_t ns = resent_ns(wait, time); ns != 0) {
                add_part(asker.parts, Spent::resent, process, wait.tid, comm, ns, &wait);
                return add_part(asker.parts, asked_for_connection(wait) ? Spent::peer : Spent::clients, process,
                                wait.tid, comm, time.length_ns() - ns, &wait);
            }
            if (asked_for_connection(wait)) return add(Spent::peer);
            [[fallthrough]];
        case BlockedReason::poll:
            // Of workers it waits for their work; of anybody else, to be asked for its own.
            if (!follow || !is_of(asker.process, wait.waker_tgid, time.to_ns)) return add(Spent::clients);
            break;
        case BlockedReason::futex:
        case BlockedReason::pipe:
            if (wait.waker_kind == WakerKind::interrupt) return add(Spent::timer);
            break;
        default:
            break;
    }
    follow = follow && depth < max_links && asker.looked_at < max_looked_at && wait_place(wait).waker_watched &&
             wait.waker_tgid != INGERO_PID_OUTSIDE;
    if (!follow) return add(Spent::unknown);
    ProcessKey waker{wait.waker_tgid, 0};
    if (waker.pid == process.pid) {
        waker = process;
    } else if (const Process* known = processes_ ? processes_->at(waker.pid, time.to_ns) : nullptr) {
        waker = known->key;
    } else {
        return add(Spent::unknown);
    }
    if (!visible_.matches(waker)) return add(Spent::unknown);
    split(asker, waker, wait_place(wait).waker_tid, wait.waker_comm, time, depth + 1);
}

void WaitTable::split(Asker& asker, ProcessKey process, uint32_t tid, const Comm& comm, Window time,
                      unsigned depth) const {
    // Of what it did before its rows were dropped nothing is known, that it ran neither.
    if (const uint64_t until_ns = processes_ ? processes_->dropped_until_ns(process) : 0; until_ns > time.from_ns) {
        const Window dropped = within(time, time.from_ns, until_ns);
        add_part(asker.parts, Spent::unknown, process, tid, comm, dropped.length_ns(), nullptr);
        time.from_ns = dropped.to_ns;
    }
    uint64_t off_ns = 0;
    // One thread's waits follow each other: those that end after `from` are behind all that do not.
    const std::span<const Event> waits = of_thread(waits_, process.pid, tid);
    auto wait = std::partition_point(waits.begin(), waits.end(),
                                     [&](const Event& one) { return saturating_end_ns(one) <= time.from_ns; });
    for (; wait != waits.end() && wait->start_ns < time.to_ns; ++wait) {
        if (depth == 0 && wait->depth != 0) continue;  // the call's own
        ++asker.looked_at;
        const Window asleep = within(time, wait->start_ns, woken_ns(*wait));
        const Window waking = within(time, woken_ns(*wait), saturating_end_ns(*wait));
        off_ns = saturating_add(off_ns, asleep.length_ns() + waking.length_ns());
        if (asleep.length_ns() != 0) slept(asker, process, comm, *wait, asleep, depth);
        add_part(asker.parts, Spent::no_cpu, process, tid, comm, waking.length_ns(), &*wait);
    }
    // Of the short ones it is known in which time they were, and how long together.
    uint64_t summed_ns = 0;
    const std::span<const Event> sums = of_thread(summed_, process.pid, tid);
    auto next = std::partition_point(sums.begin(), sums.end(), [&](const Event& one) {
        return saturating_add(one.start_ns, longest_sum_ns_) <= time.from_ns;
    });
    for (; next != sums.end() && next->start_ns < time.to_ns; ++next) {
        const Event& sum = *next;
        summed_ns = saturating_add(summed_ns, share_within(time, sum.start_ns, summed_until_ns(sum), sum.duration_ns));
    }
    if (const uint32_t known = dropped_index_.find({process.pid, tid}); known != KeyIndex<ThreadKey>::none) {
        const Dropped& dropped = dropped_[known];
        summed_ns = saturating_add(summed_ns, share_within(time, dropped.from_ns, dropped.until_ns, dropped.ns));
    }
    const uint64_t rest = saturating_subtract(time.length_ns(), off_ns);
    summed_ns = std::min(summed_ns, rest);
    add_part(asker.parts, Spent::short_waits, process, tid, comm, summed_ns, nullptr);
    add_part(asker.parts, Spent::ran, process, tid, comm, rest - summed_ns, nullptr);
}

std::span<const Event> WaitTable::waits_of(const ProcessKey& process, uint32_t tid, const Window& time,
                                           size_t most) const {
    const std::span<const Event> waits = of_thread(waits_, process.pid, tid);
    const auto from = std::partition_point(waits.begin(), waits.end(),
                                           [&](const Event& one) { return saturating_end_ns(one) <= time.from_ns; });
    const auto to =
        std::partition_point(from, waits.end(), [&](const Event& one) { return one.start_ns < time.to_ns; });
    return {from, std::min(to, from + std::min<std::ptrdiff_t>(to - from, static_cast<std::ptrdiff_t>(most)))};
}

std::vector<SpentPart> WaitTable::split(const ProcessKey& process, uint32_t tid, const Window& time) const {
    Asker asker{process, {}, 0};
    split(asker, process, tid, {}, time, 0);
    return std::move(asker.parts);
}

std::vector<Preemptor> WaitTable::preemptors(const ProcessKey& process, uint32_t tid, const Window& time) const {
    std::vector<Preemptor> preemptors;
    const std::span<const Event> waits = of_thread(waits_, process.pid, tid);
    auto wait = std::partition_point(waits.begin(), waits.end(),
                                     [&](const Event& one) { return saturating_end_ns(one) <= time.from_ns; });
    for (size_t looked_at = 0; wait != waits.end() && wait->start_ns < time.to_ns && looked_at < max_looked_at;
         ++wait, ++looked_at) {
        if (is_throttled(*wait)) continue;
        const Window runnable = within(time, woken_ns(*wait), saturating_end_ns(*wait));
        const uint64_t ns = std::min(wait->preemptor_ns, runnable.length_ns());
        if (ns == 0 || wait->preemptor_tgid == 0) continue;
        auto one = std::find_if(preemptors.begin(), preemptors.end(),
                                [&](const Preemptor& known) { return known.tgid == wait->preemptor_tgid; });
        if (one == preemptors.end()) {
            if (preemptors.size() == max_preemptors) continue;
            one = preemptors.insert(one, {wait->preemptor_comm, wait->preemptor_tgid, 0});
        }
        one->ns = saturating_add(one->ns, ns);
    }
    std::stable_sort(preemptors.begin(), preemptors.end(),
                     [](const Preemptor& a, const Preemptor& b) { return a.ns > b.ns; });
    return preemptors;
}

uint64_t WaitTable::throttled_ns(const ProcessKey& process, uint32_t tid, const Window& time) const {
    const std::span<const Event> waits = of_thread(waits_, process.pid, tid);
    auto wait = std::partition_point(waits.begin(), waits.end(),
                                     [&](const Event& one) { return saturating_end_ns(one) <= time.from_ns; });
    uint64_t ns = 0;
    for (; wait != waits.end() && wait->start_ns < time.to_ns; ++wait)
        if (is_throttled(*wait)) ns += within(time, woken_ns(*wait), saturating_end_ns(*wait)).length_ns();
    return ns;
}

}  // namespace ingero
