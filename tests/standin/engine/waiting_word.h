// A word in a file, by which the engine says to other programs when a thread of its process waits for the device: each
// beginning and each end of a wait adds one, so it is odd while one waits. For processes in which one thread waits.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "clock.h"

namespace ingero::standin {

class WaitingWord {
  public:
    /// Of a file of at least four bytes; without one where there is no such file.
    explicit WaitingWord(const char* path) {
        const int file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0) return;
        if (lseek(file, 0, SEEK_END) >= off_t(sizeof(uint32_t))) {
            void* mapped = mmap(nullptr, sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (mapped != MAP_FAILED) word_ = static_cast<std::atomic<uint32_t>*>(mapped);
        }
        close(file);
    }
    WaitingWord(const WaitingWord&) = delete;
    WaitingWord& operator=(const WaitingWord&) = delete;
    ~WaitingWord() {
        if (word_ != nullptr) munmap(word_, sizeof(uint32_t));
    }

    bool exists() const { return word_ != nullptr; }
    uint32_t value() const { return word_->load(std::memory_order_acquire); }
    static bool waits(uint32_t value) { return value % 2 != 0; }

    /// A wait begins or ends.
    void turn() {
        word_->fetch_add(1, std::memory_order_acq_rel);
        syscall(SYS_futex, word_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    /// Sleeps while it has this value, for a second at most.
    void sleep_while(uint32_t value) const {
        const timespec most = to_timespec(1'000'000'000);
        syscall(SYS_futex, word_, FUTEX_WAIT, value, &most, nullptr, 0);
    }

  private:
    std::atomic<uint32_t>* word_ = nullptr;
};

}  // namespace ingero::standin
