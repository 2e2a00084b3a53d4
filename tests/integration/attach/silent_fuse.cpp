// A FUSE server that stalls: silent-fuse DIRECTORY [MS] mounts DIRECTORY with one file in it. Without MS it answers
// until the file has been opened once, and then never again; with it, each read is answered so many ms late. "mounted"
// when it is there, "silent" when it is so.
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
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr const char* file_name = "libcudart.so.12";
constexpr uint64_t file_inode = 2, file_bytes = 65536;
constexpr uint64_t for_ever_s = 1'000'000;

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
    if (writev(fd, parts, bytes != 0 ? 2 : 1) < 0) perror("answer");
}

/// False from when nothing is answered any more. `late_ms`: of each read; negative: none is answered.
bool serve(int fd, const fuse_in_header& request, const char* body, int late_ms) {
    switch (request.opcode) {
        case FUSE_INIT: {
            fuse_init_out out{};
            out.major = FUSE_KERNEL_VERSION;
            out.minor = FUSE_KERNEL_MINOR_VERSION;
            out.max_write = 4096;
            answer(fd, request.unique, 0, &out, sizeof(out));
            return true;
        }
        case FUSE_LOOKUP: {
            if (strcmp(body, file_name) != 0) {
                answer(fd, request.unique, ENOENT);
                return true;
            }
            fuse_entry_out out{};
            out.nodeid = file_inode;
            out.entry_valid = out.attr_valid = for_ever_s;
            out.attr = attributes(file_inode);
            answer(fd, request.unique, 0, &out, sizeof(out));
            return true;
        }
        case FUSE_GETATTR: {
            fuse_attr_out out{};
            out.attr_valid = for_ever_s;
            out.attr = attributes(request.nodeid);
            answer(fd, request.unique, 0, &out, sizeof(out));
            return true;
        }
        case FUSE_OPEN: {
            fuse_open_out out{};
            out.fh = 1;
            out.open_flags = late_ms < 0 ? FOPEN_KEEP_CACHE : FOPEN_DIRECT_IO;
            answer(fd, request.unique, 0, &out, sizeof(out));
            return late_ms >= 0;
        }
        case FUSE_READ: {
            static const char bytes[file_bytes] = {};
            fuse_read_in in{};
            memcpy(&in, body, sizeof(in));
            poll(nullptr, 0, late_ms);  // the stall itself
            answer(fd, request.unique, 0, bytes, std::min<size_t>(in.size, sizeof(bytes)));
            return true;
        }
        default:
            answer(fd, request.unique, ENOSYS);
            return true;
    }
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2 && count != 3) return 2;
    const int late_ms = count == 3 ? atoi(arguments[2]) : -1;
    const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) return perror("/dev/fuse"), 77;
    const std::string options = "fd=" + std::to_string(fd) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
    if (mount("silent", arguments[1], "fuse.silent", MS_NODEV, options.c_str()) != 0) return perror("mount"), 77;
    std::cout << "mounted" << std::endl;
    alignas(fuse_in_header) static char buffer[1 << 17];
    bool answers = true;
    while (answers) {
        const ssize_t got = read(fd, buffer, sizeof(buffer));
        if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) break;
        fuse_in_header request;
        memcpy(&request, buffer, sizeof(request));
        answers = serve(fd, request, buffer + sizeof(request), late_ms);
    }
    std::cout << "silent" << std::endl;
    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    umount2(arguments[1], MNT_DETACH);
    return 0;
}
