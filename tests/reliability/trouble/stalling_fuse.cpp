// A FUSE file system of one file, libcudart.so.12, that never answers one kind of request, or none once the file has
// been opened: stalling-fuse DIRECTORY lookup|getattr|open|read|statfs|flush|opened. All others are answered: "mounted"
// when it is there, "stalled" at each request that is left without an answer. It ends with its standard input, and
// whoever waits for it goes on then, with an error.
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

namespace {

constexpr const char* file_name = "libcudart.so.12";
constexpr uint64_t file_inode = 2, file_bytes = 65536;

fuse_attr attributes(uint64_t inode) {
    fuse_attr attr{};
    attr.ino = inode;
    attr.mode = inode == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755;
    attr.nlink = 1;
    attr.size = inode == FUSE_ROOT_ID ? 0 : file_bytes;
    attr.blksize = 4096;
    return attr;
}

void answer(int fd, uint64_t unique, int error, const void* body = nullptr, size_t bytes = 0) {
    fuse_out_header header{static_cast<uint32_t>(sizeof(header) + bytes), -error, unique};
    iovec parts[] = {{&header, sizeof(header)}, {const_cast<void*>(body), bytes}};
    // A request that was interrupted is gone.
    if (writev(fd, parts, bytes != 0 ? 2 : 1) < 0 && errno != ENOENT) perror("answer");
}

struct Stall {
    uint32_t opcode = 0;
    bool on_files_alone = false;  ///< the directory's own attributes are answered
    bool is_next = false;         ///< this one is answered, and nothing after it
};

Stall stall_at(const std::string& call) {
    if (call == "lookup") return {.opcode = FUSE_LOOKUP};
    if (call == "getattr") return {.opcode = FUSE_GETATTR, .on_files_alone = true};
    if (call == "open") return {.opcode = FUSE_OPEN};
    if (call == "read") return {.opcode = FUSE_READ};
    if (call == "statfs") return {.opcode = FUSE_STATFS};
    if (call == "flush") return {.opcode = FUSE_FLUSH};
    if (call == "opened") return {.opcode = FUSE_OPEN, .is_next = true};
    return {};
}

/// How long the kernel need not ask again is `kept_s`.
void serve(int fd, const fuse_in_header& request, const char* body, uint64_t kept_s) {
    switch (request.opcode) {
        case FUSE_INIT: {
            fuse_init_out out{};
            out.major = FUSE_KERNEL_VERSION;
            out.minor = FUSE_KERNEL_MINOR_VERSION;
            out.max_write = 4096;
            return answer(fd, request.unique, 0, &out, sizeof(out));
        }
        case FUSE_LOOKUP: {
            if (strcmp(body, file_name) != 0) return answer(fd, request.unique, ENOENT);
            fuse_entry_out out{};
            out.nodeid = file_inode;
            out.entry_valid = out.attr_valid = kept_s;
            out.attr = attributes(file_inode);
            return answer(fd, request.unique, 0, &out, sizeof(out));
        }
        case FUSE_GETATTR: {
            fuse_attr_out out{};
            out.attr = attributes(request.nodeid);
            return answer(fd, request.unique, 0, &out, sizeof(out));
        }
        case FUSE_OPEN: {
            fuse_open_out out{};
            return answer(fd, request.unique, 0, &out, sizeof(out));
        }
        case FUSE_READ: {
            static const char bytes[file_bytes] = {};
            fuse_read_in in{};
            memcpy(&in, body, sizeof(in));
            return answer(fd, request.unique, 0, bytes, std::min<size_t>(in.size, sizeof(bytes)));
        }
        case FUSE_STATFS: {
            fuse_statfs_out out{};
            out.st.bsize = out.st.frsize = 4096;
            out.st.namelen = 255;
            return answer(fd, request.unique, 0, &out, sizeof(out));
        }
        case FUSE_FLUSH:
        case FUSE_RELEASE:
            return answer(fd, request.unique, 0);
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
            return;  // want no answer
        default:
            return answer(fd, request.unique, ENOSYS);
    }
}

}  // namespace

int main(int count, char** arguments) {
    const Stall stall = count == 3 ? stall_at(arguments[2]) : Stall{};
    if (stall.opcode == 0) return 2;
    const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return perror("/dev/fuse"), 77;
    const std::string options = "fd=" + std::to_string(fd) + ",rootmode=40755,user_id=0,group_id=0,allow_other";
    if (mount("stalling", arguments[1], "fuse.stalling", MS_NODEV, options.c_str()) != 0) return perror("mount"), 77;
    std::cout << "mounted" << std::endl;
    alignas(fuse_in_header) static char buffer[1 << 17];
    pollfd waited[] = {{fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    bool stalls_all = false;
    while (poll(waited, 2, -1) > 0 && waited[1].revents == 0) {
        const ssize_t got = read(fd, buffer, sizeof(buffer));
        if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOENT)) continue;
        if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) break;
        fuse_in_header request;
        memcpy(&request, buffer, sizeof(request));
        const bool is_meant =
            request.opcode == stall.opcode && !(stall.on_files_alone && request.nodeid == FUSE_ROOT_ID);
        if (stalls_all || (is_meant && !stall.is_next))
            std::cout << "stalled" << std::endl;
        else
            serve(fd, request, buffer + sizeof(request), stall.is_next ? 0 : 1'000'000);
        stalls_all = stalls_all || (is_meant && stall.is_next);
    }
    umount2(arguments[1], MNT_DETACH);
    return 0;  // closes the file system: all who wait are told
}
