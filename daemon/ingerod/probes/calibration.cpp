#include "daemon/ingerod/probes/calibration.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "core/model/time.h"

#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl ingero_calibrated_call
    .type ingero_calibrated_call, @function
ingero_calibrated_call:
    push %rbp
    xor %eax, %eax
    pop %rbp
    ret
    .size ingero_calibrated_call, .-ingero_calibrated_call
)");
#elif defined(__aarch64__)
asm(R"(
    .text
    .p2align 4
    .globl ingero_calibrated_call
    .type ingero_calibrated_call, %function
ingero_calibrated_call:
    stp x29, x30, [sp, #-16]!
    mov w0, #0
    ldp x29, x30, [sp], #16
    ret
    .size ingero_calibrated_call, .-ingero_calibrated_call
)");
#else
#error "no function to calibrate with for this architecture"
#endif

namespace ingero {

namespace {

constexpr size_t rounds = 9;
constexpr unsigned calls_a_round = 200;
constexpr size_t single_calls = 32;
constexpr size_t cache_line = 64;
/// Costs of entries that differ by less are not distinguished.
constexpr double least_difference_ns = 10;
constexpr double farthest = 1.5;

struct Search {
    uintptr_t address = 0;
    std::optional<uint64_t> file_offset;
};

int look_into(dl_phdr_info* object, size_t, void* context) {
    Search& search = *static_cast<Search*>(context);
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& segment = object->dlpi_phdr[i];
        const uintptr_t start = object->dlpi_addr + segment.p_vaddr;
        if (segment.p_type != PT_LOAD || search.address < start || search.address >= start + segment.p_filesz) continue;
        search.file_offset = segment.p_offset + (search.address - start);
    }
    return 1;  // the executable comes first: no other is looked at
}

}  // namespace

bool CallCost::knows_work() const {
    return amid_work.entry_ns - alone.entry_ns >= std::max(least_difference_ns, alone.entry_ns / 4);
}

CallPrice CallCost::at(double entry_ns) const {
    if (!knows_work()) return alone;
    const double far = std::clamp((entry_ns - alone.entry_ns) / (amid_work.entry_ns - alone.entry_ns), 0.0, farthest);
    const auto between = [&](double from, double to) { return from + far * std::max(to - from, 0.0); };
    return {.unkept_ns = between(alone.unkept_ns, amid_work.unkept_ns),
            .record_ns = between(alone.record_ns, amid_work.record_ns),
            .entry_ns = entry_ns};
}

Result<CalibratedFunction> find_calibrated_function() {
    CalibratedFunction function;
    function.file.reset(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    if (!function.file) return fail(ErrorCode::internal, errno_message("/proc/self/exe", errno));
    Search search{reinterpret_cast<uintptr_t>(&ingero_calibrated_call), {}};
    dl_iterate_phdr(look_into, &search);
    if (!search.file_offset) return fail(ErrorCode::internal, "the calibrated function is not in the executable");
    function.file_offset = *search.file_offset;
    return function;
}

std::vector<uint32_t> time_calibrated_calls(size_t ways, const std::function<void(size_t way)>& prepare) {
    std::vector<std::array<uint64_t, rounds>> times(ways);
    // What the kernel side keeps of the thread goes with it.
    std::thread([&] {
        for (size_t round = 0; round < rounds; ++round) {
            for (size_t way = 0; way < ways; ++way) {
                prepare(way);
                const uint64_t before = monotonic_now_ns();
                for (unsigned i = 0; i < calls_a_round; ++i) ingero_calibrated_call();
                times[way][round] = (monotonic_now_ns() - before) / calls_a_round;
            }
        }
    }).join();
    std::vector<uint32_t> result;
    for (auto& one : times) {
        std::sort(one.begin(), one.end());
        result.push_back(static_cast<uint32_t>(std::min<uint64_t>(one[rounds / 4], UINT32_MAX)));
    }
    return result;
}

/// Empty where there is none. Not of the heap, which would keep room for as much from then on.
static std::span<uint64_t> map_memory(size_t bytes) {
    if (bytes == 0) return {};
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return {};
    return {static_cast<uint64_t*>(memory), bytes / sizeof(uint64_t)};
}

SingleCalls time_single_calls(size_t work_bytes, const std::function<uint64_t()>& timed_ns) {
    std::vector<uint64_t> calls, entries;
    const std::span<uint64_t> memory = map_memory(work_bytes);
    std::thread([&] {
        uint64_t timed_before = timed_ns ? timed_ns() : 0;
        for (size_t number = 0; number < single_calls; ++number) {
            for (size_t at = 0; at < memory.size(); at += cache_line / sizeof(uint64_t)) memory[at] += at + number;
            const uint64_t before = monotonic_now_ns();
            ingero_calibrated_call();
            calls.push_back(monotonic_now_ns() - before);
            // After the call: it reads what the call then would find in the caches.
            const uint64_t timed = timed_ns ? timed_ns() : 0;
            entries.push_back(timed - std::exchange(timed_before, timed));
        }
    }).join();
    if (!memory.empty()) munmap(memory.data(), work_bytes);
    const auto median = [](std::vector<uint64_t>& all) {
        std::nth_element(all.begin(), all.begin() + single_calls / 2, all.end());
        return all[single_calls / 2];
    };
    return {median(calls), median(entries)};
}

}  // namespace ingero
