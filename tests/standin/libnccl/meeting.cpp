#include "meeting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <ctime>

namespace ingero::standin {

namespace {

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
    return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

Meeting* join_meeting(uint64_t name, uint32_t ranks) {
    const char* const folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char path[64];
    std::snprintf(path, sizeof path, "%s/ingero-standin-nccl-%016llx", folder, static_cast<unsigned long long>(name));
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return nullptr;
    void* base = MAP_FAILED;
    if (ftruncate(file, sizeof(Meeting)) == 0)
        base = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (base == MAP_FAILED) return nullptr;
    auto* meeting = static_cast<Meeting*>(base);  // a new file is all zeros, which is a meeting nobody has come to
    const uint32_t joined = meeting->joined.fetch_add(1) + 1;
    futex(meeting->joined, FUTEX_WAKE, INT_MAX, nullptr);
    if (joined == ranks) unlink(path);
    return meeting;
}

// Waking up now and then is for `stop`, which nobody tells the kernel of.
bool wait_for(std::atomic<uint32_t>& word, uint32_t value, const std::atomic<bool>& stop) {
    constexpr timespec look_again{0, 100'000'000};
    for (;;) {
        const uint32_t now = word.load();
        if (int32_t(now - value) >= 0) return true;
        if (stop.load()) return false;
        futex(word, FUTEX_WAIT, now, &look_again);
    }
}

void tell(std::atomic<uint32_t>& word, uint32_t value) {
    word.store(value);
    futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace ingero::standin
