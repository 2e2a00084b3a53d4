// What others know of processes: how far their libraries are attached to, why something is not seen of them, and their
// ranks.
#include "core/model/time.h"
#include "daemon/ingerod/targets/processes.h"

namespace ingero {

void Processes::on_ranked(const ProcessKey& key) {
    ProcessEntry* const entry = find(key);
    if (entry && !entry->excluded && set_rank(entry->process.facts, callbacks_.rank_of(key, entry->program_since_ns)))
        callbacks_.put_process(entry->process);
}

std::string Processes::state_of(const ProcessEntry& entry) const {
    std::string result = entry.refused.empty() && !entry.spared_ns ? "tracing" : "failed";
    for (const LibraryKey& key : entry.libraries) {
        const LibraryEntry* library = libraries_.find(key);
        if (!library || library->state == LibraryState::reading)
            result = "attaching";
        else if (library->state == LibraryState::failed)
            result = "failed";
    }
    return result;
}

void Processes::probe_set_turned(const std::string& set, size_t number, bool on) {
    const GapId gap{{}, GapReason::turned_off, {0, number + 1}};
    if (on)
        gaps_.close(gap, monotonic_now_ns());
    else
        gaps_.open(gap, 0, monotonic_now_ns(), "probe set " + set);
}

void Processes::in_slices(const ProcessKey& key, const std::string& ops) {
    const ProcessEntry* entry = find(key);
    if (!entry) return;
    const GapId gap{key, GapReason::sliced, {}};
    if (ops.empty())
        gaps_.close(gap, monotonic_now_ns());
    else
        gaps_.open(gap, entry->process.uid, monotonic_now_ns(), ops);
}

void Processes::is_late(const ProcessKey& key, uint64_t since_ns) {
    const ProcessEntry* entry = find(key);
    if (entry) gaps_.open({key, GapReason::late_attach, {}}, entry->process.uid, since_ns, "launches and copies");
}

void Processes::is_attached(const ProcessKey& key, uint64_t since_ns) {
    gaps_.close({key, GapReason::late_attach, {}}, since_ns);
}

void Processes::on_let_go(const LibraryKey& key) {
    const LibraryEntry* library = libraries_.find(key);
    for (const auto& [pid, entry] : processes_) {
        if (!library || !entry.libraries.contains(key)) continue;
        gaps_.close({entry.process.key, GapReason::refused, key.file}, monotonic_now_ns());
        gaps_.open({entry.process.key, GapReason::late_attach, key.file}, entry.process.uid, monotonic_now_ns(),
                   library->name());
    }
}

void Processes::on_missed(const LibraryKey& key) {
    const LibraryEntry* library = libraries_.find(key);
    if (!library || !library->sets.contains("nccl")) return;
    const uint64_t now = monotonic_now_ns();
    const Window time{now, now + reattached_ns};
    // Forked ranks map it too, and are known by their calls alone. What a user has of its own silences nobody else.
    if (library->is_system_wide()) return callbacks_.on_interrupted(std::nullopt, time);
    for (const auto& [pid, entry] : processes_)
        if (entry.libraries.contains(key)) callbacks_.on_interrupted(entry.process.key, time);
}

void Processes::close_gaps() {
    gaps_.close_all(monotonic_now_ns());
}

}  // namespace ingero
