#include "daemon/ingerod/targets/processes.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/model/time.h"
#include "core/render/render.h"
#include "daemon/ingerod/limits/shortage.h"
#include "daemon/ingerod/targets/programs.h"

namespace ingero {

namespace {

constexpr uint64_t refusal_period_ns = 60'000'000'000;
constexpr uint64_t settle_us = 10'000;
/// How soon it is looked whether a process called that nothing is decided of.
constexpr uint64_t undecided_period_us = 25'000;
constexpr uint64_t exit_record_us = 250'000;
constexpr size_t max_gone_unseen = 4096;
constexpr const char* spared_reason = "it has a seccomp filter, and this kernel could kill it when traced";
/// Where the limit of descriptors is not known, or none.
constexpr uint64_t most_processes = 1 << 20;
const auto own_pid = static_cast<uint32_t>(getpid());

/// When the process began, on CLOCK_MONOTONIC; at the soonest `earliest_ns`.
uint64_t start_of(const ProcessKey& process, uint64_t earliest_ns) {
    const ClockTriple now = ClockTriple::now();
    const uint64_t age_ns = now.boottime_ns - std::min(process.start_ns, now.boottime_ns);
    return std::max(earliest_ns, now.monotonic_ns - std::min(age_ns, now.monotonic_ns));
}

}  // namespace

ProcessLimits ProcessLimits::of_descriptors() {
    rlimit descriptors{};
    const bool known = getrlimit(RLIMIT_NOFILE, &descriptors) == 0;
    ProcessLimits limits;
    limits.total = std::min<uint64_t>(known ? descriptors.rlim_cur / 2 : limits.total, most_processes);
    limits.of_a_user = std::min(limits.of_a_user, limits.total / 2);
    return limits;
}

Processes::Processes(EventLoop& loop, const ProcFs& proc, Libraries& libraries, CaptureGate& gate,
                     const UidOwners& owners, const ProcessLimits& limits, Callbacks callbacks)
    : loop_(loop),
      proc_(proc),
      libraries_(libraries),
      gate_(gate),
      owners_(owners),
      callbacks_(std::move(callbacks)),
      gaps_([this](GapRow row) { callbacks_.put_gap(std::move(row)); }, &owners),
      watched_(limits.total, limits.of_a_user),
      unreadable_(loop, proc, owners, gaps_,
                  {.look = [this](uint32_t pid, uint64_t since_ns) { scan_process(pid, since_ns); },
                   .on_spared = [this](const ProcessKey& key, uint64_t time_ns) { on_spared(key, time_ns); }}),
      late_(loop, limits.look_burst, limits.look_period_ns,
            [this](const ProcessKey& key, uint64_t since_ns) { look(key, since_ns); }),
      unexamined_(loop, owners, gaps_) {}

void Processes::scan(uint64_t since_ns) {
    for (const uint32_t pid : proc_.pids()) scan_process(pid, since_ns);
}

void Processes::scan_in_turns(uint64_t since_ns) {
    // A walk that losses began anew each time would never get to whoever is last in it.
    if (walk_.active()) return void(next_scan_since_ns_ = std::min(next_scan_since_ns_, since_ns));
    scan_since_ns_ = std::min(since_ns, dropped_since_ns_);
    walk_.begin();
}

void Processes::end_scan() {
    if (const uint64_t since_ns = std::exchange(next_scan_since_ns_, UINT64_MAX); since_ns != UINT64_MAX)
        scan_in_turns(since_ns);
}

void Processes::scan_process(uint32_t pid, uint64_t since_ns, bool recorded) {
    const auto mappings = proc_.try_executable_mappings(pid);
    if (!mappings) return unreadable_.add(pid, since_ns);
    // Once, however many libraries it maps: that reads several files of /proc.
    std::optional<ProcessEntry*> process;
    for (const Mapping& mapping : *mappings) {
        const auto library = library_of_path(mapping.path);
        if (!library) {
            if (may_be_program(mapping.path)) callbacks_.look_at_program(pid, mapping, since_ns);
            continue;
        }
        if (!process) process = pid == own_pid || is_beyond_share(pid) ? nullptr : observe(pid, since_ns);
        if (!*process) continue;
        const ProcessKey key = (*process)->process.key;
        trace(**process, mapping, {*library, false}, start_of(key, late_.since(key, since_ns)), recorded);
    }
}

ProcessEntry* Processes::observe(uint32_t pid, uint64_t since_ns) {
    auto facts = proc_.read_process(pid);
    if (!facts && facts.error().code != ErrorCode::not_found) unreadable_.add(pid, since_ns);
    if (!facts || has_ended(facts->key)) return nullptr;  // what its parent has not waited for is still in /proc
    auto known = processes_.find(pid);
    if (known != processes_.end() && known->second.process.key == facts->key) {
        // What it was stays, whatever is left of it. Asked for last: what was read before is of then.
        if (!proc_.is_ending(facts->key)) take_over(known->second, std::move(*facts));
        return &known->second;
    }
    if (known != processes_.end()) forget(pid, monotonic_now_ns(), exit_status_unknown);  // the pid is used again

    ProcessEntry entry;
    entry.process = std::move(*facts);
    entry.process.first_seen_ns = monotonic_now_ns();
    entry.owner = owners_.owner_of(entry.process.uid);
    entry.number = ++last_number_;
    make_room(entry.owner);
    if (watched_.may_take(entry.owner, 1)) entry.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!entry.pidfd) {
        dropped_since_ns_ = std::min(dropped_since_ns_, since_ns);
        return nullptr;
    }
    entry.exit_source = loop_.add_io(entry.pidfd.get(), EPOLLIN, [this, pid](uint32_t) { on_pidfd(pid); });
    decide(entry);
    read_facts(entry);
    if (!entry.excluded) callbacks_.put_process(entry.process);
    watched_.take(entry.owner, 1);
    in_order_[entry.owner].emplace(entry.number, pid);
    ProcessEntry& kept = processes_.emplace(pid, std::move(entry)).first->second;
    callbacks_.on_change();
    return &kept;
}

// The oldest of the user's own goes; where all descriptors are used up, of whoever has most.
void Processes::make_room(uint32_t owner) {
    if (watched_.may_take(owner, 1)) return;
    auto user = in_order_.find(owner);
    if (user == in_order_.end())
        user = std::max_element(in_order_.begin(), in_order_.end(),
                                [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (user != in_order_.end()) evict(processes_.find(user->second.begin()->second));
}

// A scan has no order: those that it finds first stay, and it costs little however many there are.
bool Processes::is_beyond_share(uint32_t pid) {
    const auto uid = processes_.contains(pid) ? std::nullopt : proc_.user_of(pid);
    const uint32_t owner = owners_.owner_of(uid.value_or(0));
    if (!uid || watched_.may_take(owner, 1)) return false;
    report_crowd(owner, *uid);
    return true;
}

void Processes::report_crowd(uint32_t owner, uint32_t uid) {
    if (!crowded_.insert(owner).second) return;
    gaps_.open({{}, GapReason::too_many, {0, uint64_t{owner} + 1}}, uid, monotonic_now_ns(),
               "user " + std::to_string(owner) + " has more processes than the " +
                   std::to_string(watched_.held_by(owner)) + " that ingerod watches");
}

// Its calls are recorded on, and its next one has it looked at again.
void Processes::evict(std::map<uint32_t, ProcessEntry>::iterator process) {
    const ProcessEntry& entry = process->second;
    const ProcessKey key = entry.process.key;
    const uint64_t now = monotonic_now_ns();
    report_crowd(entry.owner, entry.process.uid);
    callbacks_.on_not_traced(key);
    callbacks_.on_evicted(key);
    gaps_.end_process(key, now);
    if (!entry.excluded && evicted_.emplace(key, entry.process).second) evicted_order_.push_back(key);
    for (; evicted_order_.size() > EndedProcesses::max_processes; evicted_order_.pop_front())
        evicted_.erase(evicted_order_.front());
    drop(process);
}

void Processes::drop(std::map<uint32_t, ProcessEntry>::iterator process) {
    const uint32_t owner = process->second.owner;
    drop_libraries(process->second);
    const auto order = in_order_.find(owner);
    order->second.erase(process->second.number);
    if (order->second.empty()) in_order_.erase(order);
    processes_.erase(process);
    watched_.give_back(owner, 1);
    // Not at the first that ends: that one's place is taken in an instant.
    if (watched_.held_by(owner) <= watched_.each() / 2 && crowded_.erase(owner) != 0)
        gaps_.close({{}, GapReason::too_many, {0, uint64_t{owner} + 1}}, monotonic_now_ns());
}

void Processes::look_later(uint32_t owner, const ProcessKey& key, uint64_t since_ns) {
    if (late_.add(owner, key, since_ns)) return;
    if (since_ns != 0) dropped_since_ns_ = std::min(dropped_since_ns_, since_ns);
    callbacks_.on_not_traced(key);
}

void Processes::look(const ProcessKey& key, uint64_t since_ns) {
    if (since_ns != 0)
        look_at_new_program(key, since_ns);
    else
        look_at_caller(key);
}

// Of what is left out nothing is kept.
void Processes::read_facts(ProcessEntry& entry) {
    if (entry.excluded || entry.has_facts) return;
    entry.process.facts = proc_.read_facts(entry.process.key, facts_options_);
    entry.has_facts = true;
    set_rank(entry.process.facts, callbacks_.rank_of(entry.process.key, entry.program_since_ns));
}

// A process changes as it runs another program, or is moved to another control group.
void Processes::take_over(ProcessEntry& entry, Process now) {
    Process& process = entry.process;
    const bool same = process.comm == now.comm && process.uid == now.uid && process.cgroup == now.cgroup &&
                      process.cpus_allowed == now.cpus_allowed && process.mems_allowed == now.mems_allowed &&
                      entry.has_facts;
    if (process.cgroup != now.cgroup) entry.has_facts = false;
    process.comm = std::move(now.comm);
    process.uid = now.uid;
    process.cgroup = std::move(now.cgroup);
    process.unit = std::move(now.unit);
    process.cpus_allowed = std::move(now.cpus_allowed);
    process.mems_allowed = std::move(now.mems_allowed);
    apply_policy(entry);
    read_facts(entry);
    if (!same && !entry.excluded) callbacks_.put_process(process);
}

void Processes::drop_libraries(ProcessEntry& entry) {
    for (const LibraryKey& library : entry.libraries) libraries_.watch_for_disuse(library);
    entry.libraries.clear();
    entry.refused.clear();
}

// The kernel side reports the exit too, with its code: it is given a moment to be read.
void Processes::on_pidfd(uint32_t pid) {
    const auto known = processes_.find(pid);
    if (known == processes_.end()) return;
    const uint64_t now = monotonic_now_ns();
    known->second.exit_source = loop_.add_timer(
        exit_record_us, [this, pid, now] { forget(pid, now, exit_status_unknown); }, settle_us);
}

void Processes::forget(uint32_t pid, uint64_t exited_ns, int exit_code) {
    const auto known = processes_.find(pid);
    if (known == processes_.end()) return;
    Process process = known->second.process;
    process.exited_ns = exited_ns;
    process.exit_code = exit_code;
    callbacks_.on_not_traced(process.key);
    gaps_.end_process(process.key, exited_ns);
    if (known->second.excluded) {
        ended_.put(process.key, false);
    } else {
        set_rank(process.facts, callbacks_.rank_of(process.key, known->second.program_since_ns));
        callbacks_.put_process(process);
        ended_.put(process);
    }
    late_.forget(process.key);
    drop(known);
    callbacks_.on_change();
}

bool Processes::has_row(const ProcessKey& key) const {
    if (const auto known = processes_.find(key.pid); known != processes_.end() && known->second.process.key == key)
        return !known->second.excluded;
    return ended_.has_row(key);
}

// Another program: what it maps is found anew, and so is whether it is to be traced. A loop of them is inspected now
// and then: meanwhile records show what it maps.
void Processes::on_exec(ProcessEntry& entry, uint64_t time_ns) {
    const ProcessKey key = entry.process.key;
    drop_libraries(entry);
    gaps_.end_process(key, time_ns);
    // Records of several CPUs come in any order: this may be of the new program.
    if (entry.spared_ns && *entry.spared_ns < time_ns) {
        entry.spared_ns.reset();
        callbacks_.on_interrupted(key, {time_ns, time_ns});
    }
    open_spared_gap(entry, time_ns);
    entry.has_facts = false;
    entry.program_since_ns = time_ns;
    if (!late_.may_look(entry.owner)) return look_later(entry.owner, key, time_ns);
    late_.forget(key);
    look_at_new_program(key, time_ns);
}

void Processes::look_at_new_program(const ProcessKey& key, uint64_t since_ns) {
    const ProcessEntry* entry = observe(key.pid, since_ns);
    if (entry && entry->process.key == key) scan_process(key.pid, since_ns);
    callbacks_.on_exec(key);
}

void Processes::on_exec_of_unknown(const ProcessKey& key, const ingero_process_record& change) {
    unreadable_.forget_spared(key.pid, change.time_ns);
    if (late_.may_look(owners_.owner_of(change.uid))) callbacks_.on_exec(key);
}

void Processes::refuse(ProcessEntry& process, FileId file, const std::string& name, uint64_t time_ns,
                       const std::string& why) {
    if (process.refused.size() < CoverageGaps::max_open_a_process) process.refused.insert(file);
    gaps_.open({process.process.key, GapReason::refused, file}, process.process.uid, time_ns, name + ": " + why);
    warn_not_traced(name, process.process.key.pid, why);
}

void Processes::warn_not_traced(const std::string& what, uint32_t pid, const std::string& why) {
    const uint64_t now = monotonic_now_ns();
    if (now - refusal_logged_ns_ < refusal_period_ns) return;
    refusal_logged_ns_ = now;
    spdlog::warn("not traced: {} of process {}: {}", escape_text(what), pid, escape_text(why));
}

// The kernel side leaves its calls alone, whatever it has mapped.
void Processes::on_spared(const ProcessKey& key, uint64_t time_ns) {
    // Of its threads under a filter, for as long as it runs this program.
    callbacks_.on_interrupted(key, {time_ns, UINT64_MAX});
    ProcessEntry* entry = observe(key.pid, time_ns);
    if (entry)
        unreadable_.forget_spared(key.pid, time_ns);
    else
        unreadable_.set_spared(key, time_ns);
    if (!entry || entry->process.key != key || entry->excluded) return;
    if (!entry->spared_ns) warn_not_traced("all calls", key.pid, spared_reason);
    entry->spared_ns = time_ns;
    open_spared_gap(*entry, time_ns);
    callbacks_.on_change();
}

void Processes::open_spared_gap(const ProcessEntry& entry, uint64_t from_ns) {
    if (!entry.spared_ns || entry.excluded) return;
    gaps_.open({entry.process.key, GapReason::refused, {}}, entry.process.uid, from_ns,
               std::string("all calls: ") + spared_reason);
}

void Processes::on_mapping(uint32_t pid, const Mapping& mapping, uint64_t time_ns, bool recorded) {
    if (const auto library = library_of_path(mapping.path)) trace(pid, mapping, {*library, false}, time_ns, recorded);
}

void Processes::on_program(uint32_t pid, const Mapping& mapping, uint64_t time_ns) {
    trace(pid, mapping, {Library::cuda_runtime, true}, time_ns, false);
}

void Processes::on_unexamined(uint32_t pid, const Mapping& mapping, uint64_t time_ns, const std::string& why) {
    const auto facts = proc_.read_process(pid);
    if (!facts && facts.error().code == ErrorCode::deadline) return unreadable_.add(pid, time_ns);
    // Gone without a trace: then root alone sees the gap, since whose process it was is not known.
    const ProcessKey key = facts ? facts->key : ProcessKey{pid, 0};
    const GapId id{key, GapReason::refused, mapping.file};
    // A host may start any number of programs as root that come and go before they are looked at.
    gaps_.open(id, facts ? facts->uid : 0, time_ns, mapping.path.substr(mapping.path.rfind('/') + 1) + ": " + why,
               true);
    // A process that lives may run another program by now; one that holds the question up may not.
    const auto now = facts ? proc_.try_executable_mappings(pid) : std::vector<Mapping>{};
    const bool is_there =
        !now || std::any_of(now->begin(), now->end(), [&](const Mapping& one) { return one.file == mapping.file; });
    if (!is_there) return gaps_.close(id, monotonic_now_ns());
    if (!processes_.contains(pid) && !unexamined_.watch(key, facts->uid)) gaps_.close(id, monotonic_now_ns());
}

void Processes::trace(uint32_t pid, const Mapping& mapping, TracedFile file, uint64_t time_ns, bool recorded) {
    if (pid == own_pid) return;
    const auto uid = processes_.contains(pid) ? std::nullopt : proc_.user_of(pid);
    if (const uint32_t owner = owners_.owner_of(uid.value_or(0)); uid && !late_.may_look(owner)) {
        const auto start_ns = proc_.start_of(pid);
        return start_ns ? look_later(owner, {pid, *start_ns}, time_ns) : void();
    }
    if (ProcessEntry* process = observe(pid, time_ns)) trace(*process, mapping, file, time_ns, recorded);
}

void Processes::trace(ProcessEntry& process, const Mapping& mapping, TracedFile file, uint64_t time_ns, bool recorded) {
    const ProcessKey key = process.process.key;
    const uint32_t uid = process.process.uid;
    if (process.excluded) return gaps_.open({key, GapReason::excluded, {}}, uid, time_ns, *process.excluded);
    const LibraryKey library{mapping.file, file};
    const bool seen_before = process.libraries.contains(library);
    const Libraries::Sight sight = libraries_.see(key.pid, uid, mapping, file);
    if (sight.gone) return;
    const std::string name = mapping.path.substr(mapping.path.rfind('/') + 1);
    if (!sight.refused.empty()) return refuse(process, mapping.file, name, time_ns, sight.refused);
    process.libraries.insert(library);
    if (sight.entry->state == LibraryState::failed)
        return refuse(process, mapping.file, name, time_ns, sight.entry->reason);
    const GapId late{key, GapReason::late_attach, mapping.file};
    if (sight.entry->state == LibraryState::reading) return gaps_.open(late, uid, time_ns, sight.entry->name());
    // Its probes were there before; by a policy nothing was recorded of it up to the decision, though.
    if (policy_.captures_all() || seen_before || recorded) return;
    gaps_.open(late, uid, time_ns, sight.entry->name());
    gaps_.close(late, monotonic_now_ns());
}

void Processes::on_settled(const LibraryKey& key) {
    const LibraryEntry* library = libraries_.find(key);
    const uint64_t now = monotonic_now_ns();
    const bool failed = library && library->state == LibraryState::failed;
    gaps_.close_file(key.file, GapReason::late_attach, now, [&](const ProcessKey& process, uint32_t uid) {
        const ProcessEntry* entry = find(process);
        // It has the file by another name, of which this says nothing.
        if (entry && !entry->libraries.contains(key))
            gaps_.open({process, GapReason::late_attach, key.file}, uid, now, library ? library->name() : "");
        else if (failed)
            gaps_.open({process, GapReason::refused, key.file}, uid, now, library->name() + ": " + library->reason);
    });
    if (failed) return;
    // Its probes lie in the file, for whoever maps it.
    gaps_.close_file(key.file, GapReason::refused, now);
    for (auto& [pid, entry] : processes_)
        if (entry.refused.erase(key.file) != 0) entry.libraries.insert(key);
}

void Processes::decide(ProcessEntry& entry) {
    if (policy_.captures_all()) {
        entry.excluded.reset();
        return;
    }
    // A program that was started between the two looks is not the one decided on.
    for (int looks = 0; looks < 2; ++looks) {
        entry.excluded = policy_.excluded_by(entry.process);
        if (!gate_.decide(entry.process.key, !entry.excluded))
            spdlog::warn("process {} is not traced: [capture] could not be applied to it in the kernel",
                         entry.process.key.pid);
        const auto again = proc_.read_process(entry.process.key.pid);
        if (!again || again->key != entry.process.key || again->comm == entry.process.comm) return;
        entry.process.comm = again->comm;
    }
}

void Processes::apply_policy(ProcessEntry& entry) {
    const bool was_excluded = entry.excluded.has_value();
    decide(entry);
    if (was_excluded == entry.excluded.has_value()) return;
    if (entry.excluded) gate_.drop_kept_decisions();
    const uint64_t now = monotonic_now_ns();
    const ProcessKey key = entry.process.key;
    gaps_.end_process(key, now);
    if (!entry.excluded) {
        read_facts(entry);
        open_spared_gap(entry, now);
        return callbacks_.put_process(entry.process);
    }
    drop_libraries(entry);
    callbacks_.on_interrupted(key, {now, now});
    callbacks_.on_not_traced(key);
    gaps_.open({key, GapReason::excluded, {}}, entry.process.uid, now, *entry.excluded);
}

void Processes::set_policy(CapturePolicy policy) {
    policy_ = std::move(policy);
    std::vector<uint32_t> included;
    if (!policy_.captures_all()) gate_.begin_policy();
    for (auto& [pid, entry] : processes_) {
        const bool was_excluded = entry.excluded.has_value();
        apply_policy(entry);
        if (was_excluded && !entry.excluded) included.push_back(pid);
    }
    if (policy_.captures_all()) {
        gate_.capture_all();
        undecided_timer_.reset();
    } else {
        gate_.enforce();
        if (!undecided_timer_.active())
            undecided_timer_ = loop_.add_periodic(
                undecided_period_us, [this] { read_undecided(); }, settle_us);
    }
    for (const uint32_t pid : included) scan_process(pid, monotonic_now_ns());
}

// A forked child maps what its parent did without a record of it: its first call reveals it.
void Processes::read_undecided() {
    for (const UndecidedProcess& one : gate_.take_undecided()) {
        ProcessEntry* entry = observe(one.key.pid, one.time_ns);
        if (!entry || entry->process.key != one.key) continue;
        scan_process(one.key.pid, one.time_ns, one.recorded);
    }
}

// A call was seen of a process that discovery may not know: a forked child maps a library without a record of it.
void Processes::on_call(const ProcessKey& key) {
    if (has_ended(key)) return callbacks_.on_not_traced(key);
    if (!find(key))
        if (const auto uid = proc_.user_of(key.pid))
            if (const uint32_t owner = owners_.owner_of(*uid); !late_.may_look(owner)) return look_later(owner, key, 0);
    look_at_caller(key);
}

void Processes::look_at_caller(const ProcessKey& key) {
    const ProcessEntry* process = observe(key.pid, monotonic_now_ns());
    if (process && process->process.key == key && !process->excluded) return;
    callbacks_.on_not_traced(key);
    if (!process || process->process.key != key) put_gone(key, std::nullopt);
}

void Processes::put_gone(const ProcessKey& key, const std::optional<Process>& ended) {
    const auto [found, is_first] = gone_unseen_.try_emplace(key, ended);
    if (auto process = ended ? ended : found->second; !is_first && process) {
        set_rank(process->facts, callbacks_.rank_of(key, 0));
        callbacks_.put_process(*process);
        ended_.put(key, true);
        gone_unseen_.erase(found);
    }
    if (gone_unseen_.size() > max_gone_unseen) gone_unseen_.erase(gone_unseen_.begin());
}

void Processes::put_end(Process row, const ingero_process_record& change) {
    row.exited_ns = change.time_ns;
    row.exit_code = change.exit_code;
    callbacks_.put_process(row);
}

void Processes::on_end_of_unknown(const ProcessKey& key, const ingero_process_record& change) {
    if (has_ended(key)) {  // its descriptor was faster, and does not say how it ended
        if (auto row = ended_.take_without_status(key)) put_end(std::move(*row), change);
        return;
    }
    if (const auto known = evicted_.find(key); known != evicted_.end()) {
        put_end(std::move(known->second), change);
        ended_.put(key, true);
        evicted_.erase(known);
        std::erase(evicted_order_, key);
        late_.forget(key);
        return;
    }
    if (late_.forget(key)) {
        callbacks_.on_not_traced(key);
        put_gone(key, std::nullopt);
    }
    put_gone(key, Process{.key = key,
                          .uid = change.uid,
                          .parent_pid = visible_pid(change.parent_tgid),
                          .comm = std::string(change.comm, strnlen(change.comm, sizeof(change.comm))),
                          .cgroup = {},
                          .unit = {},
                          .first_seen_ns = start_of(key, 0),
                          .exited_ns = change.time_ns,
                          .exit_code = change.exit_code});
}

void Processes::on_change(const ingero_process_record& change) {
    // Starts in the unit of /proc. A record of an earlier process of this pid says nothing of this one.
    const ProcessKey key{change.tgid, reported_start_ns(change.process_start_ns)};
    if (change.change == INGERO_PROCESS_SPARED) return on_spared(key, change.time_ns);
    const auto known = processes_.find(change.tgid);
    if (known == processes_.end() || known->second.process.key != key) {
        if (change.change == INGERO_PROCESS_EXIT && change.tgid != INGERO_PID_OUTSIDE) on_end_of_unknown(key, change);
        if (change.change == INGERO_PROCESS_EXEC) on_exec_of_unknown(key, change);
        return;
    }
    if (change.change == INGERO_PROCESS_EXIT) {
        forget(change.tgid, change.time_ns, change.exit_code);
    } else if (change.change == INGERO_PROCESS_EXEC) {
        on_exec(known->second, change.time_ns);
    }
}

size_t Processes::traced() const {
    return static_cast<size_t>(
        std::count_if(processes_.begin(), processes_.end(), [](const auto& entry) { return !entry.second.excluded; }));
}

bool Processes::has_library(const LibraryKey& library) const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [&](const auto& entry) { return entry.second.libraries.contains(library); });
}

std::vector<uint32_t> Processes::uids_of(const LibraryKey& library) const {
    std::set<uint32_t> uids;
    for (const auto& [pid, entry] : processes_)
        if (entry.libraries.contains(library)) uids.insert(entry.process.uid);
    return {uids.begin(), uids.end()};
}

ProcessEntry* Processes::find(const ProcessKey& key) {
    const auto known = processes_.find(key.pid);
    return known == processes_.end() || known->second.process.key != key ? nullptr : &known->second;
}

void Processes::look_again() {
    const uint64_t now = monotonic_now_ns();
    callbacks_.on_interrupted(std::nullopt, {now, now + reattached_ns});
    libraries_.clear();
    for (auto& [pid, entry] : processes_) {
        if (!entry.excluded) gaps_.end_process(entry.process.key, now);
        open_spared_gap(entry, now);
        entry.libraries.clear();
        entry.refused.clear();
    }
    scan(now);
}

}  // namespace ingero
