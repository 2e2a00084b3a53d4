#include "daemon/ingerod/probes/kernel/bpf_syscall.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/ingerod/limits/shortage.h"

namespace ingero {

namespace {

// union bpf_attr for BPF_LINK_CREATE with uprobe_multi (kernel 6.6, include/uapi/linux/bpf.h): the distribution's
// header is older. The kernel takes any size whose tail it knows or that is zero.
struct LinkCreateUprobeMulti {
    uint32_t program_fd;
    uint32_t target_fd;
    uint32_t attach_type;
    uint32_t link_flags;
    uint64_t path;
    uint64_t offsets;
    uint64_t ref_counter_offsets;
    uint64_t cookies;
    uint32_t count;
    uint32_t flags;
    uint32_t pid;
    uint32_t reserved;
};

constexpr uint32_t uprobe_multi_return = 1;

int create_link(int program_fd, UprobeLinkKind kind, const char* path, std::span<const uint64_t> offsets,
                std::span<const uint64_t> cookies, uint32_t pid) {
    LinkCreateUprobeMulti attr{};
    attr.program_fd = static_cast<uint32_t>(program_fd);
    attr.attach_type = kind == UprobeLinkKind::session ? attach_type_uprobe_session : attach_type_uprobe_multi;
    attr.path = reinterpret_cast<uint64_t>(path);
    attr.offsets = reinterpret_cast<uint64_t>(offsets.data());
    attr.cookies = cookies.empty() ? 0 : reinterpret_cast<uint64_t>(cookies.data());
    attr.count = static_cast<uint32_t>(offsets.size());
    attr.pid = pid;
    attr.flags = kind == UprobeLinkKind::function_return ? uprobe_multi_return : 0;
    return static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr)));
}

}  // namespace

Result<UniqueFd> link_uprobes(int program_fd, UprobeLinkKind kind, const std::string& path,
                              std::span<const uint64_t> offsets, std::span<const uint64_t> cookies, uint32_t pid) {
    const int fd = create_link(program_fd, kind, path.c_str(), offsets, cookies, pid);
    if (fd >= 0) return UniqueFd(fd);
    const bool denied = errno == EPERM || errno == EACCES;
    const int error = errno;
    const ErrorCode code = denied               ? ErrorCode::denied
                           : error == ESRCH     ? ErrorCode::not_found
                           : is_shortage(error) ? ErrorCode::busy
                                                : ErrorCode::internal;
    return fail(code, errno_message("cannot attach uprobes", error));
}

int probe_uprobe_link(int program_fd, UprobeLinkKind kind) {
    const uint64_t offset = 0;
    const int fd = create_link(program_fd, kind, "/", {&offset, 1}, {}, 0);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    return errno;
}

Result<void> run_program_once(int program_fd) {
    LIBBPF_OPTS(bpf_test_run_opts, options);
    const int error = bpf_prog_test_run_opts(program_fd, &options);
    if (error < 0) return fail(ErrorCode::internal, errno_message("cannot run a BPF program", -error));
    return {};
}

}  // namespace ingero
