// A training loop: load a batch, copy it over, launch the step's kernels, wait, now and then write a checkpoint.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "workload.h"

namespace ingero::standin {

namespace {

constexpr uint64_t file_bytes = uint64_t(64) << 20;

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

// Where batches come from.
class Loader {
  public:
    explicit Loader(const Settings& settings) : settings_(settings) {
        if (settings.loader != "read") return;
        file_ = make_file(settings.scratch);
        write_whole(file_, file_bytes);
        fdatasync(file_);
        buffer_.resize(settings.loader_kib << 10);
    }
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;
    ~Loader() {
        if (file_ >= 0) close(file_);
    }

    void load(uint64_t step) {
        if (settings_.loader == "compute")
            compute();
        else if (settings_.loader == "read")
            read(step);
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

    void read(uint64_t step) {
        const uint64_t room = std::max<uint64_t>(1, file_bytes / std::max<size_t>(buffer_.size(), 1));
        const off_t at = off_t(step % room * buffer_.size());
        if (settings_.loader_cold) posix_fadvise(file_, at, off_t(buffer_.size()), POSIX_FADV_DONTNEED);
        if (pread(file_, buffer_.data(), buffer_.size(), at) < 0) throw std::runtime_error("a batch cannot be read");
    }

    const Settings& settings_;
    int file_ = -1;
    std::vector<char> buffer_;
    volatile uint64_t sum_ = 1;
};

class Trainer {
  public:
    Trainer(Caller& caller, const Settings& settings)
        : caller_(caller), settings_(settings), loader_(settings), batch_(settings.batch_kib << 10) {
        stream_ = caller.create_stream();
        input_ = caller.allocate(std::max<size_t>(batch_.size(), 1));
    }

    void step(uint64_t number) {
        loader_.load(number);
        if (!batch_.empty()) caller_.copy(input_, batch_.data(), batch_.size(), host_to_device, stream_);
        for (uint64_t i = 0; i < settings_.launches; ++i) caller_.launch(kernel_symbol(i), stream_);
        caller_.synchronize(stream_);
        if (settings_.checkpoint_every != 0 && (number + 1) % settings_.checkpoint_every == 0) checkpoint();
    }

    void finish() {
        caller_.free(input_);
        caller_.destroy_stream(stream_);
    }

  private:
    void checkpoint() {
        std::vector<char> weights(settings_.checkpoint_kib << 10);
        caller_.copy(weights.data(), input_, weights.size(), device_to_host, stream_);
        caller_.synchronize(stream_);
        const int file = make_file(settings_.scratch);
        write_whole(file, weights.size());
        fsync(file);
        close(file);
    }

    Caller& caller_;
    const Settings& settings_;
    Loader loader_;
    std::vector<char> batch_;
    void* stream_ = nullptr;
    void* input_ = nullptr;
};

std::string run_train(const Runtime& runtime, const Settings& settings, Totals& totals) {
    register_kernels(runtime, totals);
    const uint64_t deadline = deadline_ns(settings);
    const uint64_t steps = settings.duration_s > 0 ? ~uint64_t(0) : settings.steps;
    std::vector<uint64_t> done(settings.threads);
    totals.add(run_threads(runtime, settings.threads, [&](unsigned index, Caller& caller) {
        Trainer trainer(caller, settings);
        Pacer pacer(settings.rate, settings.pace);
        for (uint64_t i = 0; i < steps && !stopping() && monotonic_ns() < deadline; ++i) {
            pacer.wait_turn();
            trainer.step(i);
            ++done[index];
        }
        trainer.finish();
    }));
    uint64_t sum = 0;
    for (const uint64_t part : done) sum += part;
    return " steps=" + std::to_string(sum);
}

}  // namespace

Workload train_workload() {
    return {
        [](const Settings& s) { return "kernel_us=" + std::to_string(s.kernel_us < 0 ? 50 : s.kernel_us); },
        [](const Settings& s) {
            if (s.duration_s > 0) return uint64_t(1) << 20;
            return s.threads * s.steps * (s.launches + 4) * 2 + 256;
        },
        run_train,
    };
}

}  // namespace ingero::standin
