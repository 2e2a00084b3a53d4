#include "daemon/ingerod/stacks/walk_tables.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "core/model/time.h"

namespace ingero {

namespace {

/// Longer than any run of a program: those that found the old content have ended.
constexpr uint64_t grace_ns = 1'000'000'000;

std::atomic_ref<uint32_t> shared(uint32_t& word) {
    return std::atomic_ref<uint32_t>(word);
}

ingero_process_key kernel_key(const ProcessKey& process) {
    return {.start = process.start_ns / INGERO_START_UNIT_NS, .tgid = process.pid, .reserved = 0};
}

}  // namespace

void WalkTables::enable(bool on) {
    shared(maps_.control->enabled).store(on ? 1 : 0);
    bump_epoch();
}

void WalkTables::set_next_stack(uint32_t id, uint32_t most) {
    shared(maps_.control->next_stack).store(id);
    shared(maps_.control->limit).store(id);
    shared(maps_.control->end).store(id + most);
}

void WalkTables::allow_stacks(uint32_t count) {
    shared(maps_.control->limit).store(shared(maps_.control->next_stack).load() + count);
    shared(maps_.control->tick).fetch_add(1);
}

void WalkTables::set_owner(uint32_t uid, uint32_t user) {
    if (uid == user) {
        bpf_map_delete_elem(maps_.uid_owners, &uid);
    } else {
        bpf_map_update_elem(maps_.uid_owners, &uid, &user, BPF_ANY);
    }
}

uint64_t WalkTables::lost_stacks() const {
    return std::atomic_ref<uint64_t>(maps_.control->lost).load();
}

uint64_t WalkTables::stacks_lost_in_ring() const {
    return std::atomic_ref<uint64_t>(maps_.control->lost_ring).load();
}

void WalkTables::bump_epoch() {
    shared(maps_.control->epoch).fetch_add(1);
}

Result<uint32_t> WalkTables::add_table(std::span<const std::span<const uint8_t>> packed_rows, uint32_t user) {
    uint64_t bytes = 0;
    for (const auto& part : packed_rows) bytes += part.size();
    const uint64_t rows = bytes / sizeof(ingero_unwind_row);
    if (rows == 0 || rows > INGERO_MAX_UNWIND_ROWS)
        return fail(ErrorCode::limit, "an unwind table of " + std::to_string(rows) + " rows cannot be used");
    if (bytes > bytes_.left() || tables_.left() == 0)
        return fail(ErrorCode::limit, "unwind tables would take more than " + std::to_string(bytes_.total() >> 20) +
                                          " MiB, or number more than " + std::to_string(tables_.total()));
    if (!bytes_.may_take(user, bytes) || !tables_.may_take(user, 1))
        return fail(ErrorCode::busy, "user " + std::to_string(user) + " has reached its limit of unwind tables");
    uint32_t slot = 0;
    while (slots_.contains(slot)) ++slot;

    LIBBPF_OPTS(bpf_map_create_opts, options);
    options.map_flags = BPF_F_INNER_MAP | BPF_F_MMAPABLE;
    const UniqueFd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "ingero_unwind", sizeof(uint32_t), sizeof(ingero_unwind_row),
                                      static_cast<uint32_t>(rows), &options));
    if (!map) return fail(ErrorCode::internal, errno_message("cannot make an unwind table", errno));
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map.get(), 0);
    if (memory == MAP_FAILED) return fail(ErrorCode::internal, errno_message("cannot map an unwind table", errno));
    auto* at = static_cast<uint8_t*>(memory);
    for (const auto& part : packed_rows) at = std::copy(part.begin(), part.end(), at);
    munmap(memory, bytes);
    const int fd = map.get();
    if (bpf_map_update_elem(maps_.unwind_tables, &slot, &fd, BPF_ANY) != 0)
        return fail(ErrorCode::internal, errno_message("cannot pass an unwind table to the kernel", errno));
    bytes_.take(user, bytes);
    tables_.take(user, 1);
    slots_[slot] = {user, bytes};
    return slot + INGERO_TABLE_FIRST;
}

void WalkTables::remove_table(uint32_t table) {
    if (table < INGERO_TABLE_FIRST) return;
    const uint32_t slot = table - INGERO_TABLE_FIRST;
    const auto known = slots_.find(slot);
    if (known == slots_.end()) return;
    bpf_map_delete_elem(maps_.unwind_tables, &slot);
    bytes_.give_back(known->second.user, known->second.bytes);
    tables_.give_back(known->second.user, 1);
    slots_.erase(known);
}

std::optional<uint32_t> WalkTables::allocate(uint32_t count) {
    for (auto at = free_.begin(); at != free_.end(); ++at) {
        const auto [first, room] = *at;
        if (room < count) continue;
        free_.erase(at);
        if (room > count) free_.emplace(first + count, room - count);
        return first;
    }
    return std::nullopt;
}

void WalkTables::release(Region region) {
    if (region.count != 0) released_.push_back({region, monotonic_now_ns()});
}

void WalkTables::reuse_released() {
    const uint64_t now = monotonic_now_ns();
    for (; !released_.empty() && now - released_.front().at_ns >= grace_ns; released_.pop_front()) {
        Region region = released_.front().region;
        places_.give_back(region.user, region.count);
        const auto after = free_.lower_bound(region.first);
        if (after != free_.end() && region.first + region.count == after->first) {
            region.count += after->second;
            free_.erase(after);
        }
        const auto next = free_.lower_bound(region.first);
        if (next != free_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == region.first) {
                before->second += region.count;
                continue;
            }
        }
        free_.emplace(region.first, region.count);
    }
}

Result<void> WalkTables::set_mappings(const ProcessKey& process, uint32_t user, uint32_t generation,
                                      std::span<const ingero_mapping> mappings) {
    const auto count = static_cast<uint32_t>(std::min<size_t>(mappings.size(), INGERO_MAX_PROCESS_MAPPINGS));
    reuse_released();
    if (!places_.may_take(user, count)) {
        forget(process);
        return fail(count > places_.left() ? ErrorCode::limit : ErrorCode::busy,
                    "user " + std::to_string(user) + " has reached its limit of mappings");
    }
    const auto first = count != 0 ? allocate(count) : 0;
    if (!first) {
        forget(process);
        return fail(ErrorCode::limit, "no room for the mappings of process " + std::to_string(process.pid));
    }
    places_.take(user, count);
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t index = *first + i;
        if (bpf_map_update_elem(maps_.mappings, &index, &mappings[i], BPF_ANY) == 0) continue;
        const int error = errno;
        release({*first, count, user});
        forget(process);
        return fail(ErrorCode::internal, errno_message("cannot store a mapping", error));
    }
    const ingero_process_key key = kernel_key(process);
    const ingero_mapping_list list{.first = *first, .count = count, .generation = generation, .reserved = 0};
    const bool stored = bpf_map_update_elem(maps_.mapping_lists, &key, &list, BPF_ANY) == 0;
    const int error = errno;
    bump_epoch();
    Region& region = lists_[process];
    release(region);
    region = {*first, count, user};
    if (stored) return {};
    forget(process);
    return fail(ErrorCode::limit, errno_message("cannot store the mappings of a process", error));
}

void WalkTables::forget(const ProcessKey& process) {
    const auto known = lists_.find(process);
    if (known == lists_.end()) return;
    const ingero_process_key key = kernel_key(process);
    bpf_map_delete_elem(maps_.mapping_lists, &key);
    bump_epoch();
    release(known->second);
    lists_.erase(known);
}

uint64_t WalkTables::exec_time(uint32_t pid) const {
    uint64_t time_ns = 0;
    return bpf_map_lookup_elem(maps_.exec_times, &pid, &time_ns) == 0 ? time_ns : 0;
}

}  // namespace ingero
