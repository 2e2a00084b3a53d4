#include "daemon/ingerod/probes/kernel/real_files.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <memory>

#include "bpf/real_file_part.h"
#include "core/model/unique_fd.h"

namespace ingero {

namespace {

/// A device as the kernel has it: unlike those of statx.
uint64_t to_device(uint32_t kernels) {
    constexpr unsigned minor_bits = 20;
    return makedev(kernels >> minor_bits, kernels & ((1u << minor_bits) - 1));
}

std::optional<uint32_t> ask(int program, const void* address, uint64_t part) {
    uint64_t arguments[] = {reinterpret_cast<uint64_t>(address), part};
    LIBBPF_OPTS(bpf_test_run_opts, options);
    options.ctx_in = arguments;
    options.ctx_size_in = sizeof(arguments);
    if (bpf_prog_test_run_opts(program, &options) != 0) return std::nullopt;
    return options.retval;
}

std::optional<FileId> behind(int program, const void* address) {
    const auto device = ask(program, address, INGERO_REAL_FILE_DEVICE);
    const auto low = ask(program, address, INGERO_REAL_FILE_INODE_LOW);
    const auto high = ask(program, address, INGERO_REAL_FILE_INODE_HIGH);
    // The program does not wait for the lock of this process's mappings.
    if (device.value_or(0) == 0 || low.value_or(0) == 0 || !high) return std::nullopt;
    return FileId{to_device(*device), static_cast<uint64_t>(*high) << 32 | *low};
}

}  // namespace

RealFileOf real_file_of(int program) {
    const auto held = std::make_shared<const UniqueFd>(program < 0 ? -1 : fcntl(program, F_DUPFD_CLOEXEC, 0));
    return [held](int fd) -> std::optional<FileId> {
        constexpr int attempts = 64;
        if (!*held) return std::nullopt;
        // Nothing is read of it.
        const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void* const page = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (page == MAP_FAILED) return std::nullopt;
        std::optional<FileId> file;
        for (int attempt = 0; !file && attempt < attempts; ++attempt) {
            if (attempt != 0) sched_yield();
            file = behind(held->get(), page);
        }
        munmap(page, bytes);
        return file;
    };
}

}  // namespace ingero
