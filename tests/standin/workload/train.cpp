// A training loop: load a batch, copy it over, launch the step's kernels, wait, now and then write a checkpoint.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "loader.h"

namespace ingero::standin {

namespace {

/// As an agent asks a tool: a request, and whatever comes back until the server is done; on a connection that is kept,
/// until it says so.
class Tool {
  public:
    Tool(uint16_t port, bool keep) : port_(port), keep_(keep) {}
    Tool(const Tool&) = delete;
    ~Tool() { drop(); }

    void ask() {
        if (connection_ < 0) reach();
        static constexpr std::string_view request = "GET /tool HTTP/1.0\r\n\r\n";
        if (send(connection_, request.data(), request.size(), MSG_NOSIGNAL) < 0)
            throw std::runtime_error("the server cannot be asked");
        std::string answer;
        char part[4096];
        while (!keep_ || !answer.ends_with("done")) {
            const ssize_t length = recv(connection_, part, sizeof part, 0);
            if (length <= 0) return drop();
            if (keep_) answer.append(part, static_cast<size_t>(length));
        }
    }

  private:
    void reach() {
        connection_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port_);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (connection_ < 0 || connect(connection_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            throw std::runtime_error("the server cannot be reached");
    }
    void drop() {
        if (connection_ >= 0) close(std::exchange(connection_, -1));
    }

    uint16_t port_;
    bool keep_;
    int connection_ = -1;
};

/// A thread that launches a part of each step for another, which sleeps meanwhile: as PyTorch's for backward passes.
class BackwardThread {
  public:
    BackwardThread(const Runtime& runtime, const Settings& settings, void* stream)
        : caller_(runtime), launches_(settings.backward_launches), cpu_(settings.backward_cpu), stream_(stream) {
        if (launches_ != 0) thread_ = std::thread([this] { work(); });
    }
    BackwardThread(const BackwardThread&) = delete;
    ~BackwardThread() { finish(); }

    void pass() {
        if (launches_ == 0) return;
        std::unique_lock lock(mutex_);
        is_asked_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !is_asked_; });
    }
    Totals finish() {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
        return std::exchange(caller_.totals, {});
    }

  private:
    void work() {
        pthread_setname_np(pthread_self(), "backward");
        if (cpu_ >= 0) keep_on_cpu(cpu_);
        for (std::unique_lock lock(mutex_); changed_.wait(lock, [this] { return is_asked_ || ends_; }), !ends_;) {
            for (uint64_t i = 0; i < launches_; ++i) caller_.launch(kernel_symbol(i), stream_);
            is_asked_ = false;
            changed_.notify_all();
        }
    }

    Caller caller_;
    const uint64_t launches_;
    const int cpu_;
    void* const stream_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_asked_ = false, ends_ = false;
    std::thread thread_;
};

class Trainer {
  public:
    Trainer(Caller& caller, const Settings& settings, Loader& loader)
        : caller_(caller),
          settings_(settings),
          loader_(loader),
          tool_(settings.ask_port, settings.ask_keep),
          batch_bytes_(settings.batch_kib << 10) {
        stream_ = caller.create_stream();
        backward_.emplace(caller.runtime(), settings, stream_);
        input_ = caller.allocate(std::max<size_t>(batch_bytes_, 1));
        if (!settings.pageable && batch_bytes_ > 0) batch_ = static_cast<char*>(caller.allocate_host(batch_bytes_));
        if (batch_ != nullptr) return;
        pageable_.resize(batch_bytes_);  // asked for, or the runtime has no pinned memory to give
        batch_ = pageable_.data();
    }

    void step(uint64_t number) {
        loader_.load(number, batch_);
        if (stopping()) return;
        void* temporary = settings_.temporary_mib != 0 ? caller_.allocate(settings_.temporary_mib << 20) : nullptr;
        if (batch_bytes_ > 0) caller_.copy(input_, batch_, batch_bytes_, host_to_device, stream_);
        for (uint64_t i = 0; i < settings_.launches; ++i) caller_.launch(kernel_symbol(i), stream_);
        backward_->pass();
        caller_.synchronize(stream_);
        const bool leak = settings_.leak_every != 0 && (number + 1) % settings_.leak_every == 0;
        if (temporary != nullptr && !leak) caller_.free(temporary);
        if (settings_.ask_port != 0 && (number + 1) % settings_.ask_every == 0) tool_.ask();
        if (settings_.checkpoint_every != 0 && (number + 1) % settings_.checkpoint_every == 0) checkpoint();
    }

    void finish() {
        caller_.totals.add(backward_->finish());
        if (pageable_.empty() && batch_ != nullptr) caller_.free_host(batch_);
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
    Loader& loader_;
    Tool tool_;
    const size_t batch_bytes_;
    char* batch_ = nullptr;
    std::vector<char> pageable_;
    void* stream_ = nullptr;
    void* input_ = nullptr;
    std::optional<BackwardThread> backward_;
};

std::string run_train(const Runtime& runtime, const Settings& settings, Totals& totals) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (unsigned i = 0; i < settings.threads; ++i) loaders.push_back(make_loader(settings));
    register_kernels(runtime, totals);
    const uint64_t deadline = deadline_ns(settings);
    const uint64_t steps = settings.duration_s > 0 ? ~uint64_t(0) : settings.steps;
    std::vector<uint64_t> done(settings.threads);
    totals.add(run_threads(runtime, settings.threads, [&](unsigned index, Caller& caller) {
        Trainer trainer(caller, settings, *loaders[index]);
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
    uint64_t waited_ns = 0;
    for (const auto& loader : loaders) waited_ns += loader->waited_ns();
    return " steps=" + std::to_string(sum) + " loader_wait_s=" + std::to_string(double(waited_ns) / 1e9);
}

}  // namespace

Workload train_workload() {
    return {
        [](const Settings& s) { return "kernel_us=" + std::to_string(s.kernel_us < 0 ? 50 : s.kernel_us); },
        [](const Settings& s) {
            if (s.duration_s > 0) return uint64_t(1) << 20;
            return s.threads * s.steps * (s.launches + s.backward_launches + 4) * 2 + 256;
        },
        run_train,
    };
}

}  // namespace ingero::standin
