// The simple workloads: so many calls at such a rate, and a thread that is always inside a call.
#include <algorithm>

#include "workload.h"

namespace ingero::standin {

namespace {

std::string kernel_option(const Settings& settings, double own) {
    return "kernel_us=" + std::to_string(settings.kernel_us < 0 ? own : settings.kernel_us);
}

// Makes one call of the kind asked for. No set-up, no warm-up: as many calls as asked for, and no other.
class Calls {
  public:
    Calls(Caller& caller, const Settings& settings) : caller_(caller), settings_(settings) {}

    void one(uint64_t turn) {
        if (settings_.op == "launch")
            caller_.launch(this, nullptr);
        else if (settings_.op == "malloc")
            allocate_or_free();
        else if (settings_.op == "memcpy")
            copy();
        else if (settings_.op == "sync")
            caller_.synchronize(nullptr);
        else
            mixed(turn % 16);
    }

  private:
    void allocate_or_free() {
        if (held_ == nullptr) {
            held_ = caller_.allocate(settings_.bytes);
        } else {
            caller_.free(held_);
            held_ = nullptr;
        }
    }

    // The stand-in copies nothing, so the address of the device needs no memory behind it.
    void copy() {
        caller_.copy(reinterpret_cast<void*>(uintptr_t(1) << 40), this, settings_.bytes, host_to_device, nullptr);
    }

    void mixed(uint64_t place) {
        if (place == 12)
            copy();
        else if (place == 13 || place == 14)
            allocate_or_free();
        else if (place == 15)
            caller_.synchronize(nullptr);
        else
            caller_.launch(this, nullptr);
    }

    Caller& caller_;
    const Settings& settings_;
    void* held_ = nullptr;
};

std::string run_calls(const Runtime& runtime, const Settings& settings, Totals& totals) {
    const uint64_t deadline = deadline_ns(settings);
    totals.add(run_threads(runtime, settings.threads, [&](unsigned index, Caller& caller) {
        const uint64_t share = settings.count / settings.threads + (index < settings.count % settings.threads ? 1 : 0);
        Calls calls(caller, settings);
        Pacer pacer(settings.rate / settings.threads, settings.pace);
        for (uint64_t i = 0; i < share && !stopping(); ++i) {
            if (deadline != ~uint64_t(0) && monotonic_ns() >= deadline) break;
            pacer.wait_turn();
            if (stopping()) break;
            calls.one(i);
        }
    }));
    return {};
}

std::string run_sync_loop(const Runtime& runtime, const Settings& settings, Totals& totals) {
    const uint64_t deadline = deadline_ns(settings);
    totals.add(run_threads(runtime, settings.threads, [&](unsigned, Caller& caller) {
        void* stream = caller.create_stream();
        while (!stopping() && monotonic_ns() < deadline) {
            caller.launch(kernel_symbol(0), stream);
            caller.synchronize(stream);
        }
        caller.destroy_stream(stream);
    }));
    return {};
}

}  // namespace

Workload calls_workload() {
    return {
        [](const Settings& settings) { return kernel_option(settings, 0); },
        [](const Settings& settings) { return settings.count * 2 + 64; },
        run_calls,
    };
}

Workload sync_loop_workload() {
    return {
        [](const Settings& settings) { return kernel_option(settings, 100); },
        [](const Settings&) { return uint64_t(1) << 18; },
        run_sync_loop,
    };
}

}  // namespace ingero::standin
