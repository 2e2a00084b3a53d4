#include "loader.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <stdexcept>

namespace ingero::standin {

namespace {

constexpr uint64_t file_bytes = uint64_t(64) << 20;
constexpr std::string_view workers_prefix = "workers:";
constexpr unsigned most_workers = 64;

/// 0 for a loader without workers, and for what is no number of them.
unsigned worker_count(std::string_view text) {
    if (!text.starts_with(workers_prefix)) return 0;
    text.remove_prefix(workers_prefix.size());
    unsigned count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    return error == std::errc() && end == text.data() + text.size() && count <= most_workers ? count : 0;
}

// The work that a batch is.
class OwnLoader : public Loader {
  public:
    OwnLoader(const Settings& settings, bool reads, bool computes)
        : settings_(settings), reads_(reads && settings.loader_kib > 0), computes_(computes) {
        if (!reads_) return;
        file_ = make_file(settings.scratch);
        write_whole(file_, file_bytes);
        fdatasync(file_);
        buffer_.resize(settings.loader_kib << 10);
    }
    OwnLoader(const OwnLoader&) = delete;
    OwnLoader& operator=(const OwnLoader&) = delete;
    ~OwnLoader() override {
        if (file_ >= 0) close(file_);
    }

    void load(uint64_t step, char* batch) override {
        if (reads_) read(step, batch);
        if (computes_) compute();
    }

  private:
    // By the thread's own clock: decoding takes its CPU time even when others hold the CPU.
    void compute() {
        timespec start, now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        do {
            for (int i = 0; i < 1000; ++i) sum_ = sum_ * 6364136223846793005u + 1442695040888963407u;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        } while (double(now.tv_sec - start.tv_sec) * 1e6 + double(now.tv_nsec - start.tv_nsec) / 1e3 <
                 settings_.loader_us);
    }

    void read(uint64_t step, char* batch) {
        const uint64_t room = std::max<uint64_t>(1, file_bytes / buffer_.size());
        const off_t at = off_t(step % room * buffer_.size());
        if (settings_.loader_cold) posix_fadvise(file_, at, off_t(buffer_.size()), POSIX_FADV_DONTNEED);
        if (pread(file_, buffer_.data(), buffer_.size(), at) < 0) throw std::runtime_error("a batch cannot be read");
        if (batch != nullptr) std::memcpy(batch, buffer_.data(), std::min(buffer_.size(), settings_.batch_kib << 10));
    }

    const Settings& settings_;
    const bool reads_, computes_;
    int file_ = -1;
    std::vector<char> buffer_;
    volatile uint64_t sum_ = 1;
};

/// Memory that the workers share with the loop.
class SharedMemory {
  public:
    explicit SharedMemory(size_t size) : size_(size) {
        base_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (base_ == MAP_FAILED) throw std::runtime_error("no shared memory for the loader's batches");
    }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory() { munmap(base_, size_); }
    char* base() const { return static_cast<char*>(base_); }

  private:
    void* base_;
    size_t size_;
};

// Worker i makes the batches i, i + N, …; each works two batches ahead. They come in order whatever each one takes.
class WorkerLoader : public Loader {
  public:
    WorkerLoader(const Settings& settings, unsigned count)
        : settings_(settings),
          batch_bytes_(std::max<size_t>(settings.batch_kib << 10, 1)),
          queue_bytes_((sizeof(Queue) + ahead * batch_bytes_ + 63) / 64 * 64),
          memory_(queue_bytes_ * count) {
        for (unsigned i = 0; i < count; ++i) {
            Queue* queue = new (memory_.base() + i * queue_bytes_) Queue;
            sem_init(&queue->free, 1, ahead);
            sem_init(&queue->ready, 1, 0);
        }
        for (unsigned i = 0; i < count; ++i) workers_.push_back(start(i, count));
    }
    WorkerLoader(const WorkerLoader&) = delete;
    WorkerLoader& operator=(const WorkerLoader&) = delete;
    ~WorkerLoader() override {
        for (unsigned i = 0; i < workers_.size(); ++i) {
            queue(i).stop.store(true);
            sem_post(&queue(i).free);
        }
        for (const pid_t worker : workers_) {
            while (waitpid(worker, nullptr, 0) < 0 && errno == EINTR) {
            }
        }
    }

    void load(uint64_t step, char* batch) override {
        const auto from = unsigned(step % workers_.size());
        const uint64_t start_ns = monotonic_ns();
        const bool ready = wait_for(from);
        waited_ns_ += monotonic_ns() - start_ns;
        if (!ready) return;  // the program is to stop
        if (batch != nullptr) std::memcpy(batch, slot(from, step / workers_.size()), settings_.batch_kib << 10);
        sem_post(&queue(from).free);
    }

    uint64_t waited_ns() const override { return waited_ns_; }

  private:
    static constexpr unsigned ahead = 2;
    struct Queue {
        sem_t free, ready;
        std::atomic<bool> stop{false};
    };

    Queue& queue(unsigned worker) const { return *reinterpret_cast<Queue*>(memory_.base() + worker * queue_bytes_); }
    char* slot(unsigned worker, uint64_t number) const {
        return memory_.base() + worker * queue_bytes_ + sizeof(Queue) + number % ahead * batch_bytes_;
    }

    // False when the program is to stop. A worker that has died is noticed within a second.
    bool wait_for(unsigned worker) {
        while (!stopping()) {
            timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            ++until.tv_sec;
            if (sem_timedwait(&queue(worker).ready, &until) == 0) return true;
            if (errno == ETIMEDOUT && has_ended(workers_[worker]))
                throw std::runtime_error("a loader's worker has ended");
        }
        return false;
    }

    static bool has_ended(pid_t worker) {
        siginfo_t info{};
        return waitid(P_PID, id_t(worker), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == worker;
    }

    pid_t start(unsigned index, unsigned count) {
        const pid_t parent = getpid();
        const pid_t worker = fork();
        if (worker < 0) throw std::runtime_error("a loader's worker cannot be started");
        if (worker > 0) return worker;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        prctl(PR_SET_NAME, "loader-worker");
        if (settings_.loader_cpu >= 0) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(size_t(settings_.loader_cpu), &set);
            if (sched_setaffinity(0, sizeof set, &set) != 0) _exit(1);
        }
        _exit(work(index, count));
    }

    int work(unsigned index, unsigned count) {
        try {
            OwnLoader own(settings_, true, true);
            Queue& mine = queue(index);
            for (uint64_t number = 0;; ++number) {
                while (sem_wait(&mine.free) != 0) {
                }
                if (mine.stop.load()) return 0;
                own.load(number * count + index, slot(index, number));
                sem_post(&mine.ready);
            }
        } catch (const std::exception& error) {
            std::fprintf(stderr, "standin-workload: loader: %s\n", error.what());
            return 1;
        }
    }

    const Settings& settings_;
    const size_t batch_bytes_, queue_bytes_;
    SharedMemory memory_;
    std::vector<pid_t> workers_;
    uint64_t waited_ns_ = 0;
};

}  // namespace

int make_file(const std::string& folder) {
    const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) throw std::runtime_error("no file can be made in " + folder);
    return file;
}

void write_whole(int file, uint64_t bytes) {
    static const std::vector<char> filler(1 << 20, 'x');
    for (uint64_t at = 0; at < bytes;) {
        const ssize_t part = pwrite(file, filler.data(), std::min<uint64_t>(filler.size(), bytes - at), off_t(at));
        if (part <= 0) throw std::runtime_error("a file cannot be written");
        at += uint64_t(part);
    }
}

std::unique_ptr<Loader> make_loader(const Settings& settings) {
    if (const unsigned count = worker_count(settings.loader); count > 0)
        return std::make_unique<WorkerLoader>(settings, count);
    return std::make_unique<OwnLoader>(settings, settings.loader == "read", settings.loader == "compute");
}

std::string check_loader(const std::string& text) {
    if (text == "none" || text == "compute" || text == "read" || worker_count(text) > 0) return {};
    return "none, compute, read, or workers:N with N from 1 to " + std::to_string(most_workers);
}

}  // namespace ingero::standin
