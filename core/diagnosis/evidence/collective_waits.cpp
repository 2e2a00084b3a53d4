#include "core/diagnosis/evidence/collective_waits.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/model/call_time.h"
#include "core/model/collective.h"
#include "core/model/op.h"

namespace ingero {

namespace {

/// What a synchronisation waits for.
enum class Reach { none, stream, device, thread };

constexpr uint64_t copied_to_host = 2;

/// One to the host returns once its stream has got there.
bool is_waiting_copy(const Op& op) {
    return op.op_class == OpClass::copy && op.waits_for_device;
}

// An event says nothing of its stream: what the same thread enqueued before is taken to be what it waits for.
Reach reach_of(const Event& event, const Op* op) {
    switch (event.op) {
        case op::cudaStreamSync:
        case op::cuStreamSynchronize:
            return Reach::stream;
        case op::cudaDeviceSync:
        case op::cuCtxSynchronize:
            return Reach::device;
        case op::cudaEventSynchronize:
        case op::cuEventSynchronize:
            return Reach::thread;
        default:
            return op && is_waiting_copy(*op) && event.args[1] == copied_to_host ? Reach::stream : Reach::none;
    }
}

bool is_stream_wait(OpId op) {
    return op == op::cudaStreamWaitEvent || op == op::cuStreamWaitEvent;
}

// What hostile or endless calls may take: beyond it the oldest goes.
constexpr size_t max_open = 256;         ///< a process
constexpr size_t max_processes = 4'096;  ///< with collectives
constexpr size_t max_links = 65'536;     ///< streams that wait for others
constexpr size_t max_threads = 65'536;
constexpr size_t max_communicators = 1'024;
constexpr size_t max_released = 65'536;  ///< communicators that ranks use no more
/// Of the past: collectives after the last one that all ranks have entered, and the latest of whom.
constexpr size_t kept_after_lowest = 16;
constexpr size_t kept_latest = 32;
constexpr size_t max_ranges = 4'096;    ///< a communicator; also sequence numbers with a skew
constexpr size_t max_waiting = 16'384;  ///< calls, to be put in order
constexpr size_t max_waits = 4'096;     ///< a range
constexpr size_t max_first_left = 64;   ///< a communicator
constexpr size_t max_syncs = 262'144;   ///< that waited for collectives or messages
/// Shorter ones explain nothing.
constexpr uint64_t long_sync_ns = 500'000;

/// Collectives of one rank on one stream that nobody has synchronised with yet.
struct Open {
    uint64_t hash = 0;  ///< 0: messages, or collectives of ranks that are not compared
    uint64_t communicator = 0;
    uint64_t stream = 0;
    uint32_t tid = 0;
    uint16_t device = 0;
    uint32_t first_sequence = 0, last_sequence = 0;
    uint64_t enqueue_start_ns = 0;
    uint64_t arrival_ns = 0;
    uint64_t arrival_call = 0;
    uint32_t arrival_tid = 0;
    OpId op = 0;                   ///< of the last
    std::optional<uint32_t> root;  ///< the same
    uint64_t free_from_ns = 0;     ///< the same
    bool event_waited = false;     ///< since then its thread has waited for an event
};

}  // namespace

struct CollectiveWaitsDeriver::Impl {
    explicit Impl(const Communicators& all) : communicators(all) {}

    /// Of one communicator.
    struct Ranks {
        std::map<uint32_t, CollectiveRange> ranges;  ///< by last sequence
        std::map<uint32_t, EnqueueSkew> skews;       ///< by sequence
        /// When the first rank came back from waiting up to that sequence; the latest of them.
        std::map<uint32_t, uint64_t> first_left;
    };

    Ranks& ranks_of(uint64_t hash) {
        if (by_hash.size() >= max_communicators && !by_hash.contains(hash)) by_hash.erase(by_hash.begin());
        return by_hash[hash];
    }

    void enqueue(const Event& event, const Collective& collective) {
        if (!collective.is_numbered()) return;
        if (is_message(event.op)) return add_message(event, collective);
        const Communicator* communicator = communicators.find(event.process(), collective.communicator);
        const uint64_t hash = communicator ? communicator->hash_at(event.start_ns) : 0;
        if (hash == 0) return add_message(event, collective);  // of ranks that are not compared
        if (hashes.size() >= max_processes && !hashes.contains(event.process())) hashes.erase(hashes.begin());
        std::set<uint64_t>& used = hashes[event.process()];
        if (used.size() < 2) used.insert(hash);
        Ranks& ranks = ranks_of(hash);
        EnqueueSkew& skew = ranks.skews[collective.sequence];
        skew.hash = hash;
        skew.sequence = collective.sequence;
        if (skew.ranks.size() < max_waits)
            skew.ranks.push_back({event.process(), communicator->row.id, communicator->rank, event.start_ns, 0,
                                  event.tid, event.op,
                                  collective.datatype == INGERO_DATATYPE_UNKNOWN ? 0 : collective.bytes, event.sequence,
                                  collective.root, free_from(event, ranks, communicator->row.id)});
        if (ranks.skews.size() > max_ranges) {
            const auto oldest = ranks.skews.begin();
            const auto range = ranks.ranges.find(oldest->first);
            if (range != ranks.ranges.end()) note_entered(range->second, oldest->second);
            ranks.skews.erase(oldest);
        }

        if (open.size() >= max_processes && !open.contains(event.process())) open.erase(open.begin());
        std::vector<Open>& own = open[event.process()];
        const auto found = std::find_if(own.begin(), own.end(), [&](const Open& one) {
            return one.communicator == collective.communicator && one.stream == event.stream;
        });
        if (found != own.end()) {
            found->last_sequence = collective.sequence;
            found->arrival_ns = event.start_ns;
            found->arrival_call = event.sequence;
            found->arrival_tid = event.tid;
            found->op = event.op;
            found->root = collective.root;
            found->free_from_ns = free_from(event, ranks, communicator->row.id);
            return;
        }
        if (own.size() >= max_open) own.erase(own.begin());
        own.push_back({hash, collective.communicator, event.stream, event.tid, event.device, collective.sequence,
                       collective.sequence, event.start_ns, event.start_ns, event.sequence, event.tid, event.op,
                       collective.root, free_from(event, ranks, communicator->row.id)});
    }

    uint64_t free_from(const Event& collective, const Ranks& ranks, uint64_t communicator) const {
        const auto found = left.find({collective.process(), communicator});
        if (found == left.end() || found->second.end_ns > collective.start_ns) return 0;
        // Others that left later ones sooner: what it waited for since was its own device.
        uint64_t free_ns = found->second.end_ns;
        for (auto one = ranks.first_left.lower_bound(found->second.sequence); one != ranks.first_left.end(); ++one)
            free_ns = std::min(free_ns, one->second);
        return free_ns;
    }

    void add_message(const Event& event, const Collective& collective) {
        if (messages.size() >= max_processes && !messages.contains(event.process())) messages.erase(messages.begin());
        std::vector<Open>& own = messages[event.process()];
        const auto known = std::find_if(own.begin(), own.end(), [&](const Open& one) {
            return one.stream == event.stream && one.tid == event.tid && one.device == event.device;
        });
        if (known != own.end()) {
            known->event_waited = false;
            return;
        }
        if (own.size() >= max_open) own.erase(own.begin());
        Open& message = own.emplace_back();
        message.communicator = collective.communicator;
        message.stream = event.stream;
        message.tid = event.tid;
        message.device = event.device;
        message.arrival_ns = event.start_ns;
    }

    // Frameworks put collectives on a stream of their own, and let the one that they synchronise with wait for an event
    // behind them. Which event that is nothing says; a stream that did so once is taken to do it always, since records
    // of these calls may be thinned.
    void link(const Event& wait) {
        for (const auto* some : {&open, &messages}) {
            const auto found = some->find(wait.process());
            if (found == some->end()) continue;
            for (const Open& one : found->second)
                if (one.stream != wait.stream && links.size() < max_links)
                    links.emplace(wait.process(), one.stream, wait.stream);
        }
    }

    void release(const Event& event, const Op& op) {
        const bool ends = op.name.ends_with("Destroy") || op.name.ends_with("Abort") || op.name.ends_with("Finalize");
        if (ends && event.args[1] != 0 && released.size() < max_released)
            released.emplace(std::pair(event.process(), event.args[1]), event.start_ns);
    }

    void synchronize(const Event& sync, Reach reach) {
        const auto found = open.find(sync.process());
        const auto behind = event_waited.find(sync.process());
        const auto sent = messages.find(sync.process());
        if (found == open.end() && behind == event_waited.end() && sent == messages.end()) return;
        // The driver's call inside the runtime's waits for the same.
        if (synced_until.size() >= max_threads) synced_until.clear();
        uint64_t& thread_end = synced_until[{sync.process(), sync.tid}];
        if (sync.start_ns < thread_end) return;
        thread_end = saturating_end_ns(sync);
        const auto waits_for = [&](const Open& one) {
            if (one.arrival_ns > sync.start_ns) return false;
            const bool follows = one.stream == sync.stream || links.contains({sync.process(), one.stream, sync.stream});
            return (reach == Reach::stream && follows) || (reach == Reach::device && one.device == sync.device) ||
                   (reach == Reach::thread && one.tid == sync.tid);
        };
        // An event may be behind what was put on a stream before, the first time that the thread waits for one.
        const auto note = [&](std::vector<Open>& some) {
            for (Open& one : some)
                if (waits_for(one) && (reach != Reach::thread || !std::exchange(one.event_waited, true)))
                    note_sync(sync, one.hash);
            if (reach != Reach::thread) std::erase_if(some, waits_for);
        };
        if (behind != event_waited.end() && reach != Reach::thread) note(behind->second);
        if (sent != messages.end()) note(sent->second);
        if (found == open.end()) return;
        std::erase_if(found->second, [&](const Open& one) {
            if (!waits_for(one)) return false;
            note_sync(sync, one.hash);
            if (reach != Reach::thread) leave(sync, one);
            close(one, sync);
            if (reach == Reach::thread) keep_behind_event(sync.process(), one);
            return true;
        });
    }

    void leave(const Event& sync, const Open& one) {
        if (left.size() >= max_released) left.clear();
        const uint64_t end_ns = saturating_end_ns(sync);
        Left& rank = left[{sync.process(), one.communicator}];
        if (end_ns >= rank.end_ns) rank = {one.last_sequence, end_ns};
        std::map<uint32_t, uint64_t>& first_left = ranks_of(one.hash).first_left;
        uint64_t& first_ns = first_left.try_emplace(one.last_sequence, end_ns).first->second;
        first_ns = std::min(first_ns, end_ns);
        if (first_left.size() > max_first_left) first_left.erase(first_left.begin());
    }

    void note_sync(const Event& sync, uint64_t hash) {
        const auto used = hashes.find(sync.process());
        const bool has_others = hash == 0 || (used != hashes.end() && used->second.size() > 1);
        if (sync.duration_ns < long_sync_ns || !has_others) return;
        sync_count += syncs[sync.process()].of_others.emplace(sync.start_ns, sync.tid, hash).second;
        if (sync_count > max_syncs) forget_syncs();
    }

    /// The older half of the process that has the most.
    void forget_syncs() {
        const auto most = std::max_element(syncs.begin(), syncs.end(), [](const auto& a, const auto& b) {
            return a.second.of_others.size() < b.second.of_others.size();
        });
        auto& of_others = most->second.of_others;
        const size_t forgotten = of_others.size() - of_others.size() / 2;
        const auto first = std::next(of_others.begin(), static_cast<std::ptrdiff_t>(forgotten));
        most->second.known_from_ns = std::get<0>(*std::prev(first)) + 1;
        of_others.erase(of_others.begin(), first);
        sync_count -= forgotten;
    }

    /// What the event was behind is not known: who hangs may have waited for an earlier one.
    void keep_behind_event(const ProcessKey& process, const Open& one) {
        if (event_waited.size() >= max_processes && !event_waited.contains(process))
            event_waited.erase(event_waited.begin());
        std::vector<Open>& own = event_waited[process];
        const auto like = std::find_if(own.begin(), own.end(), [&](const Open& known) {
            return known.communicator == one.communicator && known.stream == one.stream;
        });
        if (like != own.end()) {
            like->last_sequence = one.last_sequence;
            like->arrival_ns = one.arrival_ns;
            return;
        }
        if (own.size() >= max_open) own.erase(own.begin());
        own.push_back(one);
    }

    void close(const Open& one, const Event& sync) {
        const Communicator* communicator = communicators.find(sync.process(), one.communicator);
        if (!communicator) return;  // forgotten meanwhile
        Ranks& ranks = ranks_of(one.hash);
        CollectiveRange& range = ranks.ranges[one.last_sequence];
        range.hash = one.hash;
        range.last_sequence = one.last_sequence;
        range.ranks = communicator->ranks;
        if (range.waits.size() < max_waits)
            range.waits.push_back({.process = sync.process(),
                                   .tid = sync.tid,
                                   .communicator = one.communicator,
                                   .rank = communicator->rank,
                                   .first_sequence = one.first_sequence,
                                   .enqueue_start_ns = one.enqueue_start_ns,
                                   .arrival_ns = one.arrival_ns,
                                   .arrival_tid = one.arrival_tid,
                                   .free_from_ns = one.free_from_ns,
                                   .sync_start_ns = sync.start_ns,
                                   .sync_end_ns = saturating_end_ns(sync),
                                   .wait_ns = saturating_subtract(sync.duration_ns, sync.runnable_ns),
                                   .lateness_ns = 0,
                                   .sync_op = sync.op,
                                   .sync_call = sync.sequence,
                                   .arrival_call = one.arrival_call,
                                   .arrival_op = one.op,
                                   .root = one.root});
        if (ranks.ranges.size() > max_ranges) ranks.ranges.erase(ranks.ranges.begin());
    }

    static void note_entered(CollectiveRange& range, const EnqueueSkew& skew) {
        std::set<RankKey> entered;
        for (const EnqueueSkew::Enqueue& one : skew.ranks) {
            entered.emplace(one.process, one.communicator);
            if (is_broadcast(one.op) && one.root && one.root == one.rank) range.root_entered_ns = one.start_ns;
        }
        range.entered = entered.size();
        range.last_to_enter = *std::max_element(skew.ranks.begin(), skew.ranks.end(),
                                                [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
    }

    static void complete(CollectiveRange& range, const Ranks& ranks) {
        const auto skew = ranks.skews.find(range.last_sequence);
        if (skew != ranks.skews.end()) note_entered(range, skew->second);
        uint64_t longest_ns = 0;
        range.first_sequence = range.waits.front().first_sequence;
        for (const RankWait& wait : range.waits) {
            longest_ns = std::max(longest_ns, wait.wait_ns);
            range.first_sequence = std::min(range.first_sequence, wait.first_sequence);
        }
        for (RankWait& wait : range.waits) wait.lateness_ns = longest_ns - wait.wait_ns;
        std::sort(range.waits.begin(), range.waits.end(), [](const RankWait& a, const RankWait& b) {
            return std::tie(a.rank, a.process, a.communicator) < std::tie(b.rank, b.process, b.communicator);
        });
    }

    static uint64_t first_end(const CollectiveRange& range) {
        uint64_t first = UINT64_MAX;
        for (const RankWait& wait : range.waits) first = std::min(first, wait.sync_end_ns);
        return first;
    }

    const Communicators& communicators;
    std::map<ProcessKey, std::vector<Open>> open, event_waited, messages;
    std::map<ProcessKey, std::set<uint64_t>> hashes;  ///< of the communicators that each has used
    struct Syncs {
        /// Start and thread of calls that waited for collectives of that hash; 0: for messages.
        std::set<std::tuple<uint64_t, uint32_t, uint64_t>> of_others;
        uint64_t known_from_ns = 0;
    };
    std::map<ProcessKey, Syncs> syncs;  ///< of processes that use several communicators, or messages
    size_t sync_count = 0;              ///< in all
    std::set<std::tuple<ProcessKey, uint64_t, uint64_t>> links;  ///< process, stream of collectives, stream after it
    std::map<std::pair<ProcessKey, uint32_t>, uint64_t> synced_until;  ///< by thread
    /// When a rank last came back from waiting for a stream or device, and up to which collective.
    struct Left {
        uint32_t sequence = 0;
        uint64_t end_ns = 0;
    };
    std::map<RankKey, Left> left;
    std::map<uint64_t, Ranks> by_hash;
    std::map<std::pair<ProcessKey, uint64_t>, uint64_t> released;  ///< by process and communicator
};

CollectiveWaitsDeriver::CollectiveWaitsDeriver(const Communicators& communicators)
    : impl_(std::make_unique<Impl>(communicators)) {}
CollectiveWaitsDeriver::CollectiveWaitsDeriver(const CollectiveWaitsDeriver& other)
    : impl_(std::make_unique<Impl>(*other.impl_)) {}
CollectiveWaitsDeriver::CollectiveWaitsDeriver(CollectiveWaitsDeriver&&) noexcept = default;
CollectiveWaitsDeriver::~CollectiveWaitsDeriver() = default;

bool CollectiveWaitsDeriver::wants(const Op& op) {
    return op.op_class == OpClass::collective || op.op_class == OpClass::sync || is_stream_wait(op.id) ||
           op.op_class == OpClass::communicator || is_waiting_copy(op);
}

bool CollectiveWaitsDeriver::wants(const Event& event) {
    const Op* const op = find_op(event.op);
    return op && wants(*op) && (!is_waiting_copy(*op) || event.args[1] == copied_to_host);
}

bool CollectiveWaitsDeriver::is_event_wait(OpId op) {
    return op == op::cudaEventSynchronize || op == op::cuEventSynchronize;
}

bool CollectiveWaitsDeriver::before(const Event& a, const Event& b) {
    return std::tie(a.start_ns, a.depth, a.sequence) < std::tie(b.start_ns, b.depth, b.sequence);
}

void CollectiveWaitsDeriver::take(const Event& event) {
    const Op* const op = find_op(event.op);
    if (op && op->op_class == OpClass::communicator) return impl_->release(event, *op);
    if (event.return_code != 0) return;
    if (const auto collective = collective_of(event))
        impl_->enqueue(event, *collective);
    else if (is_stream_wait(event.op))
        impl_->link(event);
    else if (const Reach reach = reach_of(event, op); reach != Reach::none)
        impl_->synchronize(event, reach);
}

CollectiveWaits CollectiveWaitsDeriver::finish() const {
    CollectiveWaits result;
    std::vector<std::pair<uint64_t, CollectiveRange>> by_end;
    for (const auto& [hash, ranks] : impl_->by_hash) {
        for (const auto& [sequence, range] : ranks.ranges) {
            by_end.emplace_back(Impl::first_end(range), range);
            Impl::complete(by_end.back().second, ranks);
        }
        for (const auto& [sequence, seen] : ranks.skews) {
            if (seen.ranks.size() < 2) continue;
            EnqueueSkew& skew = result.skews.emplace_back(seen);
            std::sort(skew.ranks.begin(), skew.ranks.end(),
                      [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
            for (EnqueueSkew::Enqueue& one : skew.ranks) one.late_ns = one.start_ns - skew.ranks.front().start_ns;
        }
    }
    std::stable_sort(by_end.begin(), by_end.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [end, range] : by_end) result.ranges.push_back(std::move(range));
    return result;
}

std::vector<CollectiveRange> CollectiveWaitsDeriver::take_ranges(uint64_t until_ns) {
    std::vector<std::pair<uint64_t, CollectiveRange>> by_end;
    std::set<std::pair<uint64_t, uint32_t>> awaited;
    for (const auto& [process, own] : impl_->open)
        for (const Open& one : own) awaited.emplace(one.hash, one.last_sequence);
    for (auto& [hash, ranks] : impl_->by_hash) {
        for (auto range = ranks.ranges.begin(); range != ranks.ranges.end();) {
            const uint64_t end_ns = Impl::first_end(range->second);
            if (end_ns >= until_ns) {
                ++range;
                continue;
            }
            Impl::complete(range->second, ranks);
            by_end.emplace_back(end_ns, std::move(range->second));
            range = ranks.ranges.erase(range);
        }
        std::erase_if(ranks.skews, [&, hash = hash, &known = ranks.ranges](const auto& skew) {
            return skew.second.ranks.front().start_ns < until_ns && !known.contains(skew.first) &&
                   !awaited.contains({hash, skew.first});
        });
    }
    std::erase_if(impl_->by_hash, [](const auto& one) {
        return one.second.ranges.empty() && one.second.skews.empty() && one.second.first_left.empty();
    });
    std::stable_sort(by_end.begin(), by_end.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<CollectiveRange> ranges;
    for (auto& [end, range] : by_end) ranges.push_back(std::move(range));
    return ranges;
}

std::optional<bool> CollectiveWaitsDeriver::waits_for_others(const ProcessKey& process, uint32_t tid,
                                                             uint64_t call_start_ns, uint64_t hash) const {
    const auto known = impl_->syncs.find(process);
    if (known == impl_->syncs.end()) return false;
    if (call_start_ns < known->second.known_from_ns) return std::nullopt;
    const auto& all = known->second.of_others;
    for (auto one = all.lower_bound({call_start_ns, tid, 0}); one != all.end(); ++one) {
        const auto& [start_ns, thread, awaited] = *one;
        if (start_ns != call_start_ns || thread != tid) break;
        if (awaited != hash) return true;
    }
    return false;
}

std::vector<OpenCollectives> CollectiveWaitsDeriver::open() const {
    std::vector<OpenCollectives> all;
    for (const bool event_waited : {false, true})
        for (const auto& [process, own] : event_waited ? impl_->event_waited : impl_->open)
            for (const Open& one : own)
                all.push_back(
                    {process, one.hash, one.communicator, one.first_sequence, one.last_sequence, event_waited});
    return all;
}

std::map<uint32_t, EnqueueSkew> CollectiveWaitsDeriver::entered(uint64_t hash) const {
    const auto found = impl_->by_hash.find(hash);
    return found == impl_->by_hash.end() ? std::map<uint32_t, EnqueueSkew>() : found->second.skews;
}

uint64_t CollectiveWaitsDeriver::released_ns(const ProcessKey& process, uint64_t communicator) const {
    const auto found = impl_->released.find({process, communicator});
    return found == impl_->released.end() ? UINT64_MAX : found->second;
}

void CollectiveWaitsDeriver::forget_gone() {
    std::set<ProcessKey> processes;
    std::set<uint64_t> known;
    for (const Communicator& one : impl_->communicators.all()) {
        if (one.row.hash == 0) continue;
        processes.insert(one.row.process);
        known.insert(one.row.hash);
    }
    for (auto& [hash, ranks] : impl_->by_hash)
        if (!known.contains(hash)) ranks.first_left.clear();
    const auto is_known = [this](const ProcessKey& process, uint64_t communicator) {
        return impl_->communicators.find(process, communicator) != nullptr;
    };
    for (auto* some : {&impl_->open, &impl_->event_waited}) {
        for (auto& rank : *some)
            std::erase_if(rank.second, [&](const Open& one) { return !is_known(rank.first, one.communicator); });
        std::erase_if(*some, [](const auto& one) { return one.second.empty(); });
    }
    std::erase_if(impl_->messages, [&](const auto& one) { return !processes.contains(one.first); });
    std::erase_if(impl_->hashes, [&](const auto& one) { return !processes.contains(one.first); });
    std::erase_if(impl_->syncs, [&](const auto& one) {
        const bool is_gone = !processes.contains(one.first);
        if (is_gone) impl_->sync_count -= one.second.of_others.size();
        return is_gone;
    });
    std::erase_if(impl_->links, [&](const auto& one) { return !processes.contains(std::get<ProcessKey>(one)); });
    std::erase_if(impl_->synced_until, [&](const auto& one) { return !processes.contains(one.first.first); });
    std::erase_if(impl_->left, [&](const auto& one) { return !is_known(one.first.first, one.first.second); });
    std::erase_if(impl_->released, [&](const auto& one) { return !is_known(one.first.first, one.first.second); });
}

void CollectiveWaitsDeriver::forget_past() {
    forget_gone();
    impl_->syncs.clear();
    impl_->sync_count = 0;
    std::map<uint64_t, std::set<RankKey>> members;
    std::map<uint64_t, bool> in_use;
    for (const Communicator& one : impl_->communicators.all()) {
        if (one.row.hash == 0) continue;
        members[one.row.hash].emplace(one.row.process, one.row.id);
        in_use[one.row.hash] |= !impl_->released.contains({one.row.process, one.row.id});
    }
    std::erase_if(impl_->by_hash, [&](const auto& one) { return !in_use[one.first]; });
    for (auto& [hash, ranks] : impl_->by_hash) {
        ranks.ranges.clear();
        if (ranks.skews.empty()) continue;
        std::map<RankKey, uint32_t> last;
        for (const auto& [sequence, skew] : ranks.skews)
            for (const EnqueueSkew::Enqueue& one : skew.ranks) last[{one.process, one.communicator}] = sequence;
        std::set<uint32_t> kept;
        for (const auto& [rank, sequence] : last) kept.insert(sequence);
        // Who has entered none may be the one that does not come where the first is known; else it is not seen.
        const bool from_first = ranks.skews.begin()->first <= 1;
        uint32_t lowest = UINT32_MAX;
        for (const RankKey& member : members[hash])
            if (from_first || last.contains(member)) lowest = std::min(lowest, last[member]);
        size_t later = ranks.skews.size(), after_lowest = 0;
        std::erase_if(ranks.skews, [&](const auto& skew) {
            const bool is_next = skew.first >= lowest && after_lowest++ <= kept_after_lowest;
            return later-- > kept_latest && !is_next && !kept.contains(skew.first);
        });
    }
}

CollectiveFeed::CollectiveFeed(const Communicators& communicators)
    : communicators_(communicators), deriver_(communicators) {
    communicators_changed();
}

void CollectiveFeed::communicators_changed() {
    processes_.clear();
    for (const Communicator& one : communicators_.all())
        if (one.row.hash != 0) processes_.insert(one.row.process);
}

void CollectiveFeed::forget_past(uint64_t settled_ns) {
    pass_on(static_cast<size_t>(
        std::count_if(waiting_.begin(), waiting_.end(), [&](const Event& one) { return one.start_ns < settled_ns; })));
    deriver_.forget_past();
}

void CollectiveFeed::take(const Event& event) {
    if (!processes_.contains(event.process()) || !CollectiveWaitsDeriver::wants(event)) return;
    waiting_.push_back(event);
    // Blocks overlap a little: half of them wait for what may come before.
    if (waiting_.size() >= max_waiting) pass_on(max_waiting / 2);
}

const CollectiveWaitsDeriver& CollectiveFeed::derived() {
    pass_on(waiting_.size());
    return deriver_;
}

void CollectiveFeed::pass_on(size_t count) {
    std::stable_sort(waiting_.begin(), waiting_.end(), CollectiveWaitsDeriver::before);
    for (size_t i = 0; i < count; ++i) deriver_.take(waiting_[i]);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
}

CollectiveWaits collective_waits(std::span<const Event> events, const Communicators& communicators) {
    std::vector<const Event*> order;
    for (const Event& event : events) {
        const Op* op = find_op(event.op);
        if (op && CollectiveWaitsDeriver::wants(*op)) order.push_back(&event);
    }
    std::sort(order.begin(), order.end(),
              [](const Event* a, const Event* b) { return CollectiveWaitsDeriver::before(*a, *b); });
    CollectiveWaitsDeriver deriver(communicators);
    for (const Event* event : order) deriver.take(*event);
    return deriver.finish();
}

}  // namespace ingero
