// An inference engine: requests arrive, are taken into the batch and prefilled, and each step decodes one token for all
// of the batch. A request joins between steps and leaves when it has its tokens.
#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "workload.h"

namespace ingero::standin {

namespace {

struct Request {
    uint64_t arrival_ns;  ///< from the start
    uint64_t prompt_tokens;
    uint64_t tokens_left;
};

// The same requests for the same seed, however fast they are served.
class Arrivals {
  public:
    explicit Arrivals(const Settings& settings)
        : random_(settings.seed),
          gap_ns_(settings.request_rate / 1e9),
          prompt_(16, 512),
          tokens_(1, std::max<uint64_t>(2 * settings.tokens - 1, 1)) {
        next_ = make(0);
    }

    uint64_t next_arrival_ns() const { return next_.arrival_ns; }

    Request take() {
        const Request taken = next_;
        next_ = make(taken.arrival_ns);
        return taken;
    }

  private:
    Request make(uint64_t after_ns) {
        const auto gap = uint64_t(gap_ns_(random_));
        const uint64_t prompt = prompt_(random_);
        return {after_ns + gap, prompt, tokens_(random_)};
    }

    std::mt19937_64 random_;
    std::exponential_distribution<double> gap_ns_;
    std::uniform_int_distribution<uint64_t> prompt_;
    std::uniform_int_distribution<uint64_t> tokens_;
    Request next_{};
};

class Engine {
  public:
    Engine(Caller& caller, const Settings& settings)
        : caller_(caller), settings_(settings), arrivals_(settings), tokens_(settings.batch), prompt_(512) {
        stream_ = caller.create_stream();
        memory_ = caller.allocate(size_t(64) << 20);
        if (settings.graph) capture();
        start_ns_ = monotonic_ns();
    }

    /// One round: take in what has arrived, decode one token each. Waits for a request when there is nothing to do.
    void step() {
        admit(monotonic_ns() - start_ns_);
        if (batch_.empty()) {
            const uint64_t arrival = start_ns_ + arrivals_.next_arrival_ns();
            wait_until_ns(std::min(arrival, deadline_ns_), Pace::sleep);
            return;
        }
        decode();
    }

    void finish() {
        if (graph_exec_ != nullptr) {
            caller_.count([&] { return caller_.runtime().cudaGraphExecDestroy(graph_exec_); });
        }
        caller_.free(memory_);
        caller_.destroy_stream(stream_);
    }

    void set_deadline(uint64_t ns) { deadline_ns_ = ns; }
    uint64_t finished() const { return finished_; }
    std::string report() const {
        return " requests=" + std::to_string(finished_) + " tokens=" + std::to_string(decoded_) +
               " steps=" + std::to_string(steps_);
    }

  private:
    void admit(uint64_t elapsed_ns) {
        while (batch_.size() < settings_.batch && arrivals_.next_arrival_ns() <= elapsed_ns && !stopping()) {
            batch_.push_back(arrivals_.take());
            const Request& request = batch_.back();
            caller_.copy(memory_, prompt_.data(), request.prompt_tokens * sizeof(uint32_t), host_to_device, stream_);
            for (uint64_t i = 0; i < settings_.prefill; ++i) caller_.launch(kernel_symbol(i), stream_);
        }
    }

    void launch_decode() {
        for (uint64_t i = 0; i < settings_.decode; ++i) caller_.launch(kernel_symbol(i), stream_);
    }

    void capture() {
        const Runtime& runtime = caller_.runtime();
        if (graph_exec_ != nullptr) caller_.count([&] { return runtime.cudaGraphExecDestroy(graph_exec_); });
        void* graph = nullptr;
        caller_.count([&] { return runtime.cudaStreamBeginCapture(stream_, 0); });
        launch_decode();
        caller_.count([&] { return runtime.cudaStreamEndCapture(stream_, &graph); });
        caller_.count([&] { return runtime.cudaGraphInstantiate(&graph_exec_, graph, 0); });
        caller_.count([&] { return runtime.cudaGraphDestroy(graph); });
    }

    void decode() {
        if (settings_.graph && settings_.recapture_every != 0 && (steps_ + 1) % settings_.recapture_every == 0)
            capture();
        if (graph_exec_ != nullptr) {
            caller_.count([&] { return caller_.runtime().cudaGraphLaunch(graph_exec_, stream_); });
        } else {
            launch_decode();
        }
        caller_.copy(tokens_.data(), memory_, batch_.size() * sizeof(uint32_t), device_to_host, stream_);
        caller_.synchronize(stream_);
        ++steps_;
        decoded_ += batch_.size();
        finished_ += std::erase_if(batch_, [](Request& request) { return --request.tokens_left == 0; });
    }

    Caller& caller_;
    const Settings& settings_;
    Arrivals arrivals_;
    std::vector<Request> batch_;
    std::vector<uint32_t> tokens_, prompt_;
    void* stream_ = nullptr;
    void* memory_ = nullptr;
    void* graph_exec_ = nullptr;
    uint64_t start_ns_ = 0, deadline_ns_ = ~uint64_t(0);
    uint64_t finished_ = 0, decoded_ = 0, steps_ = 0;
};

std::string run_serve(const Runtime& runtime, const Settings& settings, Totals& totals) {
    register_kernels(runtime, totals);
    // Without any limit it would never end: a default one, not both.
    Settings limited = settings;
    if (limited.requests == 0 && limited.duration_s <= 0) limited.requests = 20;
    const uint64_t deadline = deadline_ns(limited);
    Caller caller(runtime);
    Engine engine(caller, limited);
    engine.set_deadline(deadline);
    while (!stopping() && monotonic_ns() < deadline) {
        if (limited.requests != 0 && engine.finished() >= limited.requests) break;
        engine.step();
    }
    engine.finish();
    totals.add(caller.totals);
    return engine.report();
}

}  // namespace

Workload serve_workload() {
    return {
        [](const Settings& s) { return "kernel_us=" + std::to_string(s.kernel_us < 0 ? 20 : s.kernel_us); },
        [](const Settings&) { return uint64_t(1) << 20; },
        run_serve,
    };
}

}  // namespace ingero::standin
