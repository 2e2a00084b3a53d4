#include "delays.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "clock.h"
#include "helper.h"
#include "options.h"

namespace ingero::standin {

namespace {

constexpr std::array<DelayKind, 14> kinds{{
    {"spin", Delay::spin, 1e3},
    {"yield", Delay::yield, 1e3},
    {"sleep", Delay::sleep, 1e3},
    {"timer", Delay::timer, 1e3},
    {"poll", Delay::poll, 1e3},
    {"pipe", Delay::pipe, 1e3},
    {"socket", Delay::socket, 1e3},
    {"futex", Delay::futex, 1e3},
    {"mutex", Delay::futex, 1e3},
    {"child", Delay::child, 1e3},
    {"disk", Delay::disk, 1024},
    {"fsync", Delay::fsync, 1024},
    {"major", Delay::major, 1024},
    {"fault", Delay::major, 1024},
}};

constexpr uint64_t block = 4096;
constexpr uint64_t scratch_size = uint64_t(64) << 20;

void sleep_ns(uint64_t ns) {
    timespec left = to_timespec(ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
}

void wait_timer(uint64_t ns) {
    const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    itimerspec when{};
    when.it_value = to_timespec(std::max<uint64_t>(ns, 1));
    uint64_t expirations;
    if (timer < 0 || timerfd_settime(timer, 0, &when, nullptr) != 0) reject("no timerfd", "timer");
    while (read(timer, &expirations, sizeof expirations) < 0 && errno == EINTR) {
    }
    close(timer);
}

enum class Receive { read, recv, poll };

// The helper writes a byte when the time is over. The pair is made anew each time: it costs little beside the wait.
void wait_for_byte(uint64_t ns, bool is_pipe, Receive how) {
    int ends[2];
    if ((is_pipe ? pipe2(ends, O_CLOEXEC) : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) != 0) {
        reject("no descriptors", "pipe or socket");
    }
    helper().write_later(ends[1], ns);
    char byte;
    if (how == Receive::poll) {
        pollfd wanted{ends[0], POLLIN, 0};
        while (::poll(&wanted, 1, -1) < 0 && errno == EINTR) {
        }
    } else if (how == Receive::recv) {
        while (recv(ends[0], &byte, 1, 0) < 0 && errno == EINTR) {
        }
    } else {
        while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
        }
    }
    close(ends[0]);
}

// The child runs nothing but system calls: other threads may hold any lock when it is made.
void wait_for_child(uint64_t ns) {
    const pid_t child = fork();
    if (child == 0) {
        sleep_ns(ns);
        _exit(0);
    }
    while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
}

int make_scratch(int flags) {
    const int file = open(options().scratch.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (file < 0) reject("no scratch file can be made in", options().scratch);
    return file;
}

// Filled with real blocks and on the disk, so that reads cannot be answered from a hole.
int scratch_file() {
    static const int file = [] {
        const int made = make_scratch(0);
        const auto filler = std::make_unique<char[]>(1 << 20);
        std::fill_n(filler.get(), 1 << 20, 'x');
        for (uint64_t at = 0; at < scratch_size; at += 1 << 20) {
            if (pwrite(made, filler.get(), 1 << 20, off_t(at)) < 0)
                reject("scratch file not written", options().scratch);
        }
        fdatasync(made);
        return made;
    }();
    return file;
}

uint64_t next_place(uint64_t bytes) {
    static std::atomic<uint64_t> place{0};
    return place.fetch_add(bytes, std::memory_order_relaxed) % (scratch_size - bytes) / block * block;
}

// Past the page cache by dropping the range first where the file system does not take O_DIRECT.
void read_disk(uint64_t bytes) {
    static const int file = [] {
        const std::string path = "/proc/self/fd/" + std::to_string(scratch_file());
        return open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    }();
    constexpr uint64_t chunk = 256 << 10;
    // Not a thread variable: the engine's are in the small room that libraries loaded late share.
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    const std::unique_ptr<void, Free> buffer(std::aligned_alloc(block, chunk));
    bytes = std::min(std::max(bytes, block), scratch_size / 2);
    uint64_t at = next_place(bytes);
    for (uint64_t left = bytes; left > 0;) {
        const uint64_t part = (std::min(left, chunk) + block - 1) / block * block;
        if (file < 0 || pread(file, buffer.get(), part, off_t(at)) < 0) {
            posix_fadvise(scratch_file(), off_t(at), off_t(part), POSIX_FADV_DONTNEED);
            if (pread(scratch_file(), buffer.get(), part, off_t(at)) < 0) return;
        }
        at += part;
        left -= std::min(left, part);
    }
}

void write_and_sync(uint64_t bytes) {
    static const int file = make_scratch(0);
    static const char filler[block] = {'y'};
    for (uint64_t at = 0; at < bytes; at += block) {
        if (pwrite(file, filler, block, off_t(at)) < 0) return;
    }
    ::fsync(file);
}

void fault_pages(uint64_t bytes) {
    bytes = std::min(std::max(bytes, block), scratch_size / 2);
    const uint64_t at = next_place(bytes);
    posix_fadvise(scratch_file(), off_t(at), off_t(bytes), POSIX_FADV_DONTNEED);
    void* base = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, scratch_file(), off_t(at));
    if (base == MAP_FAILED) return;
    madvise(base, bytes, MADV_RANDOM);  // else read-ahead leaves one fault out of many
    for (uint64_t i = 0; i < bytes; i += block) {
        static_cast<void>(*(static_cast<volatile const char*>(base) + i));
    }
    munmap(base, bytes);
}

void yield_until(uint64_t target) {
    while (now_ns() < target) sched_yield();
}

}  // namespace

const DelayKind* find_delay(std::string_view name) {
    for (const DelayKind& kind : kinds) {
        if (kind.name == name) return &kind;
    }
    return nullptr;
}

bool delay(Delay kind, uint64_t amount) {
    switch (kind) {
        case Delay::spin:
            spin_until(now_ns() + amount);
            return false;
        case Delay::yield:
            yield_until(now_ns() + amount);
            return false;
        case Delay::sleep:
            sleep_ns(amount);
            return true;
        case Delay::timer:
            wait_timer(amount);
            return true;
        case Delay::poll:
            wait_for_byte(amount, true, Receive::poll);
            return true;
        case Delay::pipe:
            wait_for_byte(amount, true, Receive::read);
            return true;
        case Delay::socket:
            wait_for_byte(amount, false, Receive::recv);
            return true;
        case Delay::futex:
            helper().wait_for_mutex(amount);
            return true;
        case Delay::child:
            wait_for_child(amount);
            return true;
        case Delay::disk:
            read_disk(amount);
            return true;
        case Delay::fsync:
            write_and_sync(amount);
            return true;
        case Delay::major:
            fault_pages(amount);
            return true;
    }
    return false;
}

void prepare_delays() {
    scratch_file();
    helper();
}

void forget_helper() {
    replace_helper();
}

}  // namespace ingero::standin
