#include "daemon/ingerod/stacks/native_stacks.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/model/time.h"
#include "core/render/render.h"

namespace ingero {

namespace {

/// A large program maps a few hundred libraries at its start: a short wait handles them together.
constexpr uint64_t gather_us = 5'000;
constexpr uint64_t tick_us = 1'000'000;
/// More new stacks in a second than any program has that runs the same loops; each costs a record and two rows.
constexpr uint32_t new_stacks_a_tick = 4'000;
/// In a session, so that a target cannot fill the store with them.
constexpr uint32_t most_stacks = 1'000'000;
/// A torch process takes some 60 MiB.
constexpr uint64_t table_budget_bytes = 192ULL << 20;
constexpr size_t kept_generations = 32;
/// Of a process with new stacks, what is mapped is read again after this.
constexpr uint64_t reread_ns = 1'000'000'000;
/// Opening one takes some 50 µs of the loop's time.
constexpr size_t max_opened_at_once = 1'024;
/// Paths of deleted files.
constexpr size_t max_looked_up_at_once = 64;
/// What is mapped is read again for an address that is in no mapping, but not for each of the many that a false chain
/// of frames has.
constexpr uint64_t stray_ns = 250'000'000;
/// Whose process it is could not be read any more.
constexpr uint32_t unknown_uid = UINT32_MAX;
/// Records of a process may still be in the rings when it is gone.
constexpr uint64_t keep_gone_ns = 2'000'000'000;

/// Of the loop; the rest has the next.
constexpr uint64_t turn_ns = 5'000'000;

}  // namespace

Mapping NativeStacks::ListedMapping::as_mapping() const {
    return {.start = start, .end = end, .offset = offset, .file = id, .path = file ? file->row.path : std::string()};
}

NativeStacks::NativeStacks(EventLoop& loop, const StackMaps& maps, WorkerPool& workers, const ProcFs& proc,
                           const UidOwners& owners, Store store, bool on)
    : loop_(loop),
      proc_(proc),
      owners_(owners),
      store_(std::move(store)),
      tables_(maps, table_budget_bytes),
      files_(loop, workers, proc, tables_, store_.last_file + 1, [this](const MappedFile& file) { on_compiled(file); }),
      names_(loop, workers, {.put_file = store_.put_file, .put_symbol = store_.put_symbol}) {
    tables_.set_next_stack(store_.last_stack + 1, most_stacks);
    tables_.allow_stacks(new_stacks_a_tick);
    tables_.enable(on);
}

NativeStacks::~NativeStacks() {
    tables_.enable(false);
}

void NativeStacks::enable(bool on) {
    tables_.enable(on);
}

NativeStacks::ProcessMappings* NativeStacks::find(const ProcessKey& key) {
    const auto known = processes_.find(key.pid);
    return known != processes_.end() && known->second.key == key ? &known->second : nullptr;
}

void NativeStacks::add_process(const ProcessKey& key) {
    ProcessMappings& process = processes_[key.pid];
    if (process.key != key) {
        if (process.key.pid != 0) tables_.forget(process.key);
        process = ProcessMappings{.key = key,
                                  .uid = {},
                                  .list = nullptr,
                                  .generation = 0,
                                  .history = {},
                                  .read_ns = 0,
                                  .retry_ns = 0,
                                  .gone_ns = 0};
    }
    // A host without traced processes is left in peace.
    if (!tick_timer_.active()) {
        allow_new();
        tick_timer_ = loop_.add_periodic(
            tick_us, [this] { tick(); }, tick_us / 10);
    }
    // Told anew also where nothing seems to have changed: at an exec the kernel side forgot the list.
    process.list = nullptr;
    process.gone_ns = 0;
    refresh(process);
}

void NativeStacks::on_exec(const ProcessKey& key) {
    if (find(key)) add_process(key);
}

void NativeStacks::on_executable_mapping(uint32_t pid) {
    if (!processes_.contains(pid)) return;
    changed_.insert(pid);
    schedule();
}

void NativeStacks::on_process_gone(const ProcessKey& key) {
    ProcessMappings* process = find(key);
    if (!process) return;
    tables_.forget(key);
    process->gone_ns = monotonic_now_ns();
}

uint32_t NativeStacks::user_of(const ProcessMappings& process) const {
    return owners_.owner_of(process.uid.value_or(unknown_uid));
}

void NativeStacks::set_uid(ProcessMappings& process, uint32_t uid) {
    if (std::exchange(process.uid, uid) != uid) tables_.set_owner(uid, owners_.owner_of(uid));
}

/// As much as the kernel side takes.
NativeStacks::List NativeStacks::read_list(ProcessMappings& process) {
    const uint32_t pid = process.key.pid;
    if (!process.uid)
        if (const auto facts = proc_.read_process(pid)) set_uid(process, facts->uid);
    const uint32_t user = user_of(process);
    const List* before = process.list.get();
    const uint64_t now = monotonic_now_ns();
    const bool retry = now - process.retry_ns >= reread_ns;
    if (retry) process.retry_ns = now;
    size_t opened = 0, looked_up = 0;
    List list;
    size_t at = 0;
    for (const Mapping& mapping : proc_.executable_mappings(pid)) {
        if (list.size() == INGERO_MAX_PROCESS_MAPPINGS) {
            if (const auto more = log_.take())
                spdlog::warn("process {} has more than {} executable mappings: stacks end in the others{}", pid,
                             list.size(), *more);
            break;
        }
        ListedMapping one{mapping.start, mapping.end, mapping.offset, mapping.file, nullptr};
        // Both are in order of address.
        while (before && at < before->size() && (*before)[at].start < mapping.start) ++at;
        const bool same = before && at < before->size() && same_mapping((*before)[at], one);
        if (same) one.file = (*before)[at].file;
        if (!one.file && (!same || retry) && opened++ < max_opened_at_once) one.file = files_.find(pid, user, mapping);
        MappedFile* file = one.file.get();
        if (file && mapping.deleted && file->row.state != FileState::rebuilt &&
            (file->row.state != FileState::deleted || retry) && looked_up++ < max_looked_up_at_once) {
            const FileState state = proc_.has_file_at(pid, mapping.path) ? FileState::rebuilt : FileState::deleted;
            if (std::exchange(file->row.state, state) != state && file->stored) store_.put_file(file->row);
        }
        list.push_back(std::move(one));
    }
    return list;
}

std::shared_ptr<const NativeStacks::List> NativeStacks::keep(ProcessMappings& process, List list) {
    const uint64_t bytes = sizeof(List) + list.size() * sizeof(ListedMapping);
    const uint32_t user = user_of(process);
    // What it had mapped before goes first: it serves stacks that are read late only.
    while (!lists_.may_take(user, bytes) && !process.history.empty()) process.history.pop_front();
    if (!lists_.may_take(user, bytes)) return nullptr;
    list.shrink_to_fit();
    lists_.take(user, bytes);
    return {new List(std::move(list)), [this, user, bytes](const List* kept) {
                delete kept;
                lists_.give_back(user, bytes);
            }};
}

/// Reads what the process has mapped now, and updates the kernel side where that has changed.
void NativeStacks::refresh(ProcessMappings& process) {
    if (process.gone_ns != 0) return;
    const uint64_t from_ns = monotonic_now_ns();
    process.tried_ns = from_ns;
    List list = read_list(process);
    // Of another process that has the pid by now, or of none.
    const auto facts = proc_.read_process(process.key.pid);
    if (!facts || facts->key != process.key || list.empty()) return;
    set_uid(process, facts->uid);
    const bool same =
        process.list && std::equal(list.begin(), list.end(), process.list->begin(), process.list->end(),
                                   [](const auto& a, const auto& b) { return same_mapping(a, b) && a.file == b.file; });
    process.read_ns = from_ns;
    if (same) return;
    process.list.reset();
    process.list = keep(process, std::move(list));
    if (process.list) return publish(process);
    tables_.forget(process.key);
    if (const auto more = log_.take())
        spdlog::warn("no native stacks of process {}: user {} has reached its limit of mappings{}", process.key.pid,
                     user_of(process), *more);
}

void NativeStacks::publish(ProcessMappings& process) {
    std::vector<ingero_mapping> mappings;
    for (const ListedMapping& one : *process.list) {
        ingero_mapping mapping{
            .start = one.start, .end = one.end, .file_address = 0, .table = INGERO_TABLE_NONE, .rows = 0};
        if (one.file) {
            mapping.file_address = one.file->address_of(one.offset);
            mapping.table = one.file->table;
            mapping.rows = one.file->table_rows;
        }
        mappings.push_back(mapping);
    }
    ++process.generation;
    if (process.generation == 0) ++process.generation;
    process.history.push_back({process.generation, process.list, process.read_ns});
    if (process.history.size() > kept_generations) process.history.pop_front();
    if (const auto set = tables_.set_mappings(process.key, user_of(process), process.generation, mappings); !set)
        if (const auto more = log_.take())
            spdlog::warn("stacks of process {} are cut short: {}{}", process.key.pid, set.error().message, *more);
    // Read of the program before: the kernel side forgot that one's list already, and this one came too late.
    if (tables_.exec_time(process.key.pid) < process.read_ns) return;
    tables_.forget(process.key);
    process.list = nullptr;
    changed_.insert(process.key.pid);
    schedule();
}

void NativeStacks::on_compiled(const MappedFile& file) {
    for (const auto& [pid, process] : processes_) {
        if (!process.list || process.gone_ns != 0) continue;
        if (std::any_of(process.list->begin(), process.list->end(),
                        [&](const ListedMapping& one) { return one.file.get() == &file; }))
            outdated_.insert(pid);
    }
    schedule();
}

void NativeStacks::schedule() {
    if (!work_timer_.active())
        work_timer_ = loop_.add_timer(
            gather_us, [this] { work_off(); }, gather_us / 5);
}

void NativeStacks::work_off() {
    work_timer_.reset();
    const uint64_t until_ns = monotonic_now_ns() + turn_ns;
    // Who changes on and on waits for all others that have.
    if (changing_.empty()) changing_.swap(changed_);
    while (!changing_.empty() && monotonic_now_ns() < until_ns) {
        const auto known = processes_.find(changing_.extract(changing_.begin()).value());
        if (known == processes_.end()) continue;
        const uint32_t before = known->second.generation;
        refresh(known->second);
        if (known->second.generation != before) outdated_.erase(known->first);
    }
    while (!outdated_.empty() && monotonic_now_ns() < until_ns) {
        const auto known = processes_.find(outdated_.extract(outdated_.begin()).value());
        if (known != processes_.end() && known->second.list && known->second.gone_ns == 0) publish(known->second);
    }
    if (!changing_.empty() || !changed_.empty() || !outdated_.empty()) schedule();
}

void NativeStacks::allow_new() {
    tables_.allow_stacks(new_stacks_a_tick);
}

void NativeStacks::tick() {
    allow_new();
    const uint64_t now = monotonic_now_ns();
    std::erase_if(processes_, [&](const auto& entry) {
        return entry.second.gone_ns != 0 && now - entry.second.gone_ns > keep_gone_ns;
    });
    if (processes_.empty()) tick_timer_.reset();
}

const MappedFilePtr& NativeStacks::nameless(MappedFilePtr& file, const char* name, FileState state) {
    if (!file) file = files_.make_nameless(name, state);
    return file;
}

void NativeStacks::add_frame(StackRow& row, const MappedFilePtr& file, uint64_t offset) {
    names_.want(file, offset);
    row.frames.push_back({file->row.id, offset});
}

bool NativeStacks::resolve(ProcessMappings* process, const ingero_stack_record& record, size_t frame, StackRow& row) {
    const bool innermost = frame == 0;
    const uint64_t place = innermost ? record.address[frame] : record.address[frame] - 1;
    const auto add_from = [&](const List& list) {
        const auto after = std::upper_bound(list.begin(), list.end(), place,
                                            [](uint64_t at, const auto& one) { return at < one.start; });
        if (after == list.begin() || place >= (after - 1)->end) return false;
        const ListedMapping& one = *(after - 1);
        const uint64_t offset = place - one.start + one.offset;
        // Closed meanwhile, for others.
        if (one.file && !one.file->fd && !one.file->named.contains(offset) && process->gone_ns == 0)
            files_.find(process->key.pid, user_of(*process), one.as_mapping());
        if (one.file)
            add_frame(row, one.file, offset);
        else
            add_frame(row, nameless(unknown_, "[unreadable file]", FileState::unread), place);
        return true;
    };
    const auto add_unknown = [&] {
        add_frame(row, nameless(unknown_, "[unreadable file]", FileState::unread), place);
        return true;
    };
    if (!process) return add_unknown();
    // Between the two the process began another program: what was mapped at one is not what was at the other.
    const auto are_parted = [&](uint64_t read_ns) {
        const uint64_t exec_ns = tables_.exec_time(process->key.pid);
        return exec_ns > std::min(read_ns, record.time_ns) && exec_ns <= std::max(read_ns, record.time_ns);
    };
    const auto listed = std::find_if(process->history.begin(), process->history.end(),
                                     [&](const auto& one) { return one.generation == record.generation; });
    if (listed != process->history.end()) {
        if (are_parted(listed->read_ns)) return add_unknown() && innermost;
        if (add_from(*listed->list)) return true;
    }
    // Mapped since, or no file: what is mapped now says which. Reading may have met the next program already; and where
    // it came too late for this one, what there is may be of the one before.
    const uint64_t now = monotonic_now_ns();
    const bool is_reported = changed_.erase(process->key.pid) + changing_.erase(process->key.pid) != 0;
    if (process->gone_ns == 0 && record.time_ns > process->tried_ns &&
        (is_reported || now - process->tried_ns >= stray_ns))
        refresh(*process);
    if (are_parted(process->read_ns) || are_parted(monotonic_now_ns())) return add_unknown() && innermost;
    if (process->list && add_from(*process->list)) return innermost;
    add_frame(row, nameless(anonymous_, "[anonymous]", FileState::anonymous), place);
    return true;
}

void NativeStacks::on_stack(const ingero_stack_record& record) {
    const ProcessKey key{record.tgid, reported_start_ns(record.process_start_ns)};
    ProcessMappings* process = find(key);
    if (!process) {
        add_process(key);
        process = find(key);
        if (process && !process->list) {
            processes_.erase(key.pid);
            process = nullptr;
        }
    }
    StackRow row{.id = record.stack, .process = key, .seen_ns = record.time_ns, .end = StackEnd::whole, .frames = {}};
    row.end =
        record.end < static_cast<uint8_t>(StackEnd::not_kept) ? static_cast<StackEnd>(record.end) : StackEnd::no_rule;
    const size_t count = std::min<size_t>(record.frames, INGERO_MAX_STACK_FRAMES);
    for (size_t i = 0; i < count; ++i) {
        if (resolve(process, record, i, row)) continue;
        // The walk took this code, mapped a moment ago, for one without a file: what lies beyond is guessed.
        if (i + 1 < count || row.end == StackEnd::whole) row.end = StackEnd::no_table;
        break;
    }
    // Nothing else reports a file that was deleted or replaced since.
    if (process && monotonic_now_ns() - process->read_ns > reread_ns) on_executable_mapping(key.pid);
    store_.put_stack(std::move(row));
}

}  // namespace ingero
