// Whether any process still maps a library, and which: one pass over all processes answers for all libraries that are
// asked about, since each pass reads the mappings of thousands.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/render/render.h"
#include "daemon/ingerod/limits/shortage.h"
#include "daemon/ingerod/targets/libraries.h"

namespace ingero {

namespace {

constexpr uint64_t settle_us = 10'000;
/// What is asked within this time is answered by one pass.
constexpr uint64_t gather_us = 100'000;
/// The containers of a job do not end at one instant.
constexpr uint64_t most_slack_us = 500'000;

bool has(const std::set<LibraryKey>& keys, FileId file) {
    const auto first = keys.lower_bound({file, {}});
    return first != keys.end() && first->file == file;
}

}  // namespace

void Libraries::find_again(const LibraryKey& key) {
    if (!can_open_files()) return later(key, {ErrorCode::busy, "no file descriptor is left", ""});
    next_search_.again.insert(key);
    search_soon();
}

// Containers come and go, each with its own copy of a library: one that nobody maps any more is let go after a while.
void Libraries::watch_for_disuse(const LibraryKey& key) {
    const auto library = entries_.find(key);
    if (library == entries_.end()) return;
    LibraryEntry& entry = library->second;
    const uint64_t after_us = entry.on_root_mount ? disuse_.usual_us : disuse_.short_us;
    if (!entry.disuse_timer.active() || entry.disuse_us > after_us) start_disuse_timer(key, entry, after_us);
}

void Libraries::start_disuse_timer(const LibraryKey& key, LibraryEntry& entry, uint64_t after_us) {
    entry.disuse_us = after_us;
    entry.disuse_timer = loop_.add_timer(
        after_us, [this, key] { on_disuse(key); }, std::min(after_us / 4, most_slack_us));
}

void Libraries::on_disuse(const LibraryKey& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    found->second.disuse_timer.reset();
    if (found->second.state == LibraryState::reading) return watch_for_disuse(key);
    if (callbacks_.in_use(key)) return;
    next_search_.unused.insert(key);
    search_soon();
}

void Libraries::search_soon() {
    if (walk_.active() || search_timer_.active()) return;
    search_timer_ = loop_.add_timer(
        gather_us, [this] { begin_search(); }, settle_us);
}

void Libraries::begin_search() {
    search_timer_.reset();
    search_ = std::exchange(next_search_, {});
    if (!search_.is_empty()) walk_.begin();
}

// A forked child maps what its parent did without a record of it: so all are asked.
void Libraries::search_in(uint32_t pid) {
    const auto mappings = proc_.try_executable_mappings(pid);
    if (!mappings) {
        search_.held_up = true;
        return;
    }
    for (const Mapping& mapping : *mappings) {
        if (has(search_.unused, mapping.file)) search_.mapped.insert(mapping.file);
        open_again(pid, mapping);
    }
}

void Libraries::open_again(uint32_t pid, const Mapping& mapping) {
    while (has(search_.again, mapping.file)) {
        auto fd = proc_.open_mapped_file(pid, mapping);
        if (!fd && fd.error().code != ErrorCode::busy) return;
        const LibraryKey key = *search_.again.lower_bound({mapping.file, {}});
        search_.again.erase(key);
        if (fd)
            request_symbols(key, std::make_shared<UniqueFd>(std::move(*fd)));
        else
            later(key, fd.error());
    }
}

void Libraries::end_search() {
    const Search search = std::exchange(search_, {});
    for (const LibraryKey& key : search.again) on_not_found(key, search.held_up);
    for (const LibraryKey& key : search.unused)
        release_unless_used(key, search.mapped.contains(key.file), search.held_up);
    if (!next_search_.is_empty()) search_soon();
}

void Libraries::on_not_found(const LibraryKey& key, bool held_up) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.state != LibraryState::reading) return;
    if (held_up && callbacks_.in_use(key))
        return later(key,
                     {ErrorCode::busy, "reading the mappings of a process that may use it did not finish in time", ""});
    // Nobody maps it any more: the next who does has it read.
    forget(found);
    callbacks_.on_change();
}

// By what holds now, after the pass: whoever mapped it after they were visited is known by the record of that, and
// whoever has ended since then may have left a child.
void Libraries::release_unless_used(const LibraryKey& key, bool is_mapped, bool held_up) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    LibraryEntry& entry = found->second;
    if (entry.disuse_timer.active() || next_search_.unused.contains(key)) return;
    if (entry.state == LibraryState::reading) return watch_for_disuse(key);
    if (callbacks_.in_use(key)) return;
    // Whoever could not be read may map it; but nobody holds it by that for ever.
    if (is_mapped || (held_up && entry.disuse_us < disuse_.usual_us))
        return start_disuse_timer(key, entry, std::min(2 * entry.disuse_us, disuse_.usual_us));
    spdlog::info("no process maps {} any more: detached", escape_text(entry.path));
    forget(found);
    callbacks_.on_change();
}

}  // namespace ingero
