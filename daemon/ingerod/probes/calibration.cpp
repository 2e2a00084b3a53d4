#include "daemon/ingerod/probes/calibration.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>

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

}  // namespace ingero
