// Makes a call, and then waits for known reasons and known times, between calls:
//   host-program CUDART chain ROUNDS US | sleep COUNT US | spin MS | receive PORT COUNT | refused PORT |
//                       read FILE COUNT BYTES | flush|write-through DEVICE FILE COUNT | map FILE PAGES | reach ADDRESS
//                       PORT MS | broadcast COUNT SOCKETS | memory FILE MIB | fill MIB
// Prints "ready PID", waits for a line, and then prints what it did: "wait FROM TO" in ns of CLOCK_MONOTONIC.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace {

int (*synchronize)();

unsigned long now_ns(clockid_t clock = CLOCK_MONOTONIC) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<unsigned long>(time.tv_sec) * 1'000'000'000 + static_cast<unsigned long>(time.tv_nsec);
}

void sleep_us(long us) {
    const timespec time{us / 1'000'000, us % 1'000'000 * 1000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

[[noreturn]] void fail(const char* what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

void put(int descriptor) {
    if (write(descriptor, "x", 1) != 1) fail("write");
}

bool take(int descriptor) {
    char byte;
    return read(descriptor, &byte, 1) == 1;
}

/// "wait FROM TO BUSY": by the clock, and how long the thread had a CPU in it.
template <class Wait>
void wait_once(Wait wait) {
    const unsigned long from = now_ns(), busy = now_ns(CLOCK_THREAD_CPUTIME_ID);
    wait();
    const unsigned long to = now_ns();
    printf("wait %lu %lu %lu\n", from, to, now_ns(CLOCK_THREAD_CPUTIME_ID) - busy);
}

/// When each of them begins to wait, when its waker is about to wake it or its timer ends, and when it is back.
struct ChainTimes {
    unsigned long from[4], to[4], back[4];
};

/// Waits for the second thread (futex), which waits for another process (pipe), which waits for a third (socket), which
/// sleeps. "chain FROM TO BACK ..." of all four for each round, as each of the four read its own clock.
void run_chain(int rounds, long us) {
    void* const shared = mmap(nullptr, static_cast<size_t>(rounds) * sizeof(ChainTimes), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    auto* const times = static_cast<ChainTimes*>(shared);
    int begin[2], between[2], end[2];
    if (pipe2(begin, O_CLOEXEC) != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, between) != 0 ||
        pipe2(end, O_CLOEXEC) != 0)
        fail("pipes");
    const auto start = [&](auto body) {
        const pid_t pid = fork();
        if (pid < 0) fail("fork");
        if (pid != 0) return pid;
        close(begin[1]);
        body();
        _exit(0);
    };
    const pid_t last = start([&] {
        for (ChainTimes* now = times; take(begin[0]); ++now) {
            now->from[3] = now_ns();
            sleep_us(us);
            now->to[3] = now->from[3] + static_cast<unsigned long>(us) * 1000;
            now->to[2] = now->back[3] = now_ns();
            put(between[0]);
        }
    });
    close(between[0]);
    const pid_t third = start([&] {
        char byte;
        ChainTimes* now = times;
        for (now->from[2] = now_ns(); recv(between[1], &byte, 1, 0) == 1; now->from[2] = now_ns()) {
            now->to[1] = now->back[2] = now_ns();
            put(end[1]);
            if (++now == times + rounds) break;
        }
    });
    close(between[1]);
    close(end[1]);
    std::mutex mutex;
    std::condition_variable changed;
    int done = 0;
    pid_t second_tid = 0;
    std::thread second([&] {
        {
            const std::lock_guard lock(mutex);
            second_tid = static_cast<pid_t>(syscall(SYS_gettid));
        }
        changed.notify_one();
        ChainTimes* now = times;
        for (now->from[1] = now_ns(); take(end[0]); now->from[1] = now_ns()) {
            now->back[1] = now_ns();
            {
                const std::lock_guard lock(mutex);
                ++done;
            }
            now->to[0] = now_ns();
            changed.notify_one();
            if (++now == times + rounds) break;
        }
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return second_tid != 0; });
    printf("threads %d %d %d %d\n", getpid(), second_tid, third, last);
    for (int round = 1; round <= rounds; ++round) {
        synchronize();
        put(begin[1]);
        times[round - 1].from[0] = now_ns();
        wait_once([&] { changed.wait(lock, [&] { return done == round; }); });
        times[round - 1].back[0] = now_ns();
    }
    lock.unlock();
    close(begin[1]);
    waitpid(last, nullptr, 0);
    waitpid(third, nullptr, 0);
    second.join();
    for (const ChainTimes* round = times; round != times + rounds; ++round) {
        printf("chain");
        for (int i = 0; i < 4; ++i) printf(" %lu %lu %lu", round->from[i], round->to[i], round->back[i]);
        printf("\n");
    }
}

int connect_to(int port) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return descriptor;
    close(descriptor);
    return -1;
}

/// Tries for so long: nobody answers.
void reach(const char* host, const char* port, int ms) {
    addrinfo wanted{}, *found = nullptr;
    wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    wanted.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &wanted, &found) != 0) fail(host);
    const int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(descriptor, found->ai_addr, found->ai_addrlen) == 0 || errno != EINPROGRESS) fail("connect");
    freeaddrinfo(found);
    pollfd answer{descriptor, POLLOUT, 0};
    wait_once([&] { poll(&answer, 1, ms); });
    close(descriptor);
}

/// Writes a file, whose pages the control group must then give up for others.
void write_file(const char* path, size_t mib) {
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const std::string block(1 << 20, 'x');
    if (file < 0) fail(path);
    for (size_t i = 0; i < mib; ++i)
        if (write(file, block.data(), block.size()) != static_cast<ssize_t>(block.size())) fail("write");
    close(file);
}

void fill(size_t mib) {
    const size_t bytes = mib << 20;
    auto* memory =
        static_cast<volatile char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory == MAP_FAILED) fail("mmap");
    for (size_t i = 0; i < bytes; i += 4096) memory[i] = 1;
}

void spin(unsigned long ms) {
    const unsigned long until = now_ns(CLOCK_THREAD_CPUTIME_ID) + ms * 1'000'000;
    while (now_ns(CLOCK_THREAD_CPUTIME_ID) < until) {
    }
}

void read_direct(const char* path, int count, size_t bytes) {
    const int file = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    void* buffer = nullptr;
    if (file < 0 || posix_memalign(&buffer, 4096, bytes) != 0) fail(path);
    for (int i = 0; i < count; ++i)
        wait_once([&] {
            if (pread(file, buffer, bytes, static_cast<off_t>(bytes) * i) != static_cast<ssize_t>(bytes)) fail("pread");
        });
    free(buffer);
    close(file);
}

/// Of a device that keeps its data in a file: each flush of it must write what was added to the file. A flush alone, or
/// a write that the device is to keep.
void flush_device(const char* device_path, const char* file_path, int count, bool writes) {
    const int device = open(device_path, O_WRONLY | O_DIRECT | O_DSYNC | O_CLOEXEC),
              file = open(file_path, O_WRONLY | O_APPEND | O_CLOEXEC);
    void* buffer = nullptr;
    constexpr size_t bytes = 4096;
    if (device < 0 || file < 0 || posix_memalign(&buffer, bytes, bytes) != 0) fail(device_path);
    memset(buffer, 'x', bytes);
    for (int i = 0; i < count; ++i) {
        if (write(file, buffer, bytes) != static_cast<ssize_t>(bytes)) fail("write");
        wait_once([&] {
            if (writes ? write(device, buffer, bytes) != static_cast<ssize_t>(bytes) : fsync(device) != 0)
                fail(device_path);
        });
    }
    free(buffer);
    close(file);
    close(device);
}

/// Datagrams that many sockets get: the thread that sends one gives it to all of them, in a soft interrupt.
void broadcast(int count, int sockets) {
    constexpr int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(0x7fffffff);  // 127.255.255.255
    int last = -1;
    for (int i = 0; i < sockets; ++i) {
        last = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        socklen_t length = sizeof(address);
        if (last < 0 || setsockopt(last, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
            setsockopt(last, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on)) != 0 ||
            bind(last, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
            getsockname(last, reinterpret_cast<sockaddr*>(&address), &length) != 0)
            fail("sockets");
    }
    for (int i = 0; i < count; ++i)
        wait_once([&] {
            if (sendto(last, "x", 1, 0, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 1)
                fail("sendto");
        });
}

void touch_pages(const char* path, size_t pages) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    constexpr size_t stride = 1024 * 4096;  // beyond what one fault reads ahead
    const auto* memory =
        static_cast<const volatile char*>(mmap(nullptr, pages * stride, PROT_READ, MAP_PRIVATE, file, 0));
    if (file < 0 || memory == MAP_FAILED) fail(path);
    madvise(const_cast<char*>(memory), pages * stride, MADV_RANDOM);
    for (size_t i = 0; i < pages; ++i) wait_once([&] { static_cast<void>(memory[i * stride]); });
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    void* runtime = dlopen(argv[1], RTLD_NOW);
    if (!runtime) return fprintf(stderr, "%s\n", dlerror()), 1;
    synchronize = reinterpret_cast<int (*)()>(dlsym(runtime, "cudaDeviceSynchronize"));
    const std::string mode = argv[2];
    const auto number = [&](int i) { return i < argc ? atol(argv[i]) : 0; };
    // What it runs itself, the driver that the first call loads too, is in memory and stays: nothing but the pages it
    // asks for is to be waited for.
    if (mode == "map") {
        synchronize();
        if (mlockall(MCL_CURRENT) != 0) fail("mlockall");
    }
    printf("ready %d\n", getpid());
    char line[16];
    if (!fgets(line, sizeof(line), stdin)) return 1;
    synchronize();
    if (mode == "chain") run_chain(static_cast<int>(number(3)), number(4));
    if (mode == "spin") wait_once([&] { spin(static_cast<unsigned long>(number(3))); });
    if (mode == "sleep")
        for (long i = 0; i < number(3); ++i) wait_once([&] { sleep_us(number(4)); });
    if (mode == "receive") {
        const int peer = connect_to(static_cast<int>(number(3)));
        if (peer < 0) fail("connect");
        for (long i = 0; i < number(4); ++i) wait_once([&] { take(peer); });
    }
    if (mode == "refused" && (connect_to(static_cast<int>(number(3))) >= 0 || errno != ECONNREFUSED)) fail("connected");
    if (mode == "read") read_direct(argv[3], static_cast<int>(number(4)), static_cast<size_t>(number(5)));
    if (mode == "flush" || mode == "write-through")
        flush_device(argv[3], argv[4], static_cast<int>(number(5)), mode != "flush");
    if (mode == "broadcast") broadcast(static_cast<int>(number(3)), static_cast<int>(number(4)));
    if (mode == "map") touch_pages(argv[3], static_cast<size_t>(number(4)));
    if (mode == "reach") reach(argv[3], argv[4], static_cast<int>(number(5)));
    if (mode == "memory") write_file(argv[3], static_cast<size_t>(number(4)));
    if (mode == "fill") fill(static_cast<size_t>(number(3)));
    synchronize();
    printf("done\n");
    // Until the other end is closed: sockets are looked for while it lives.
    while (fgets(line, sizeof(line), stdin)) {
    }
    return 0;
}
