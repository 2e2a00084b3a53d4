// The workload `every`: calls each traced function by its exported name, once or more with success and at least once
// with an error, with arguments that no two calls share. The families are in files of their own.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../libcudart/abi.h"
#include "workload.h"

namespace ingero::standin {

/// Makes the calls of one thread. Functions are looked up in the runtime and in the driver.
class Every {
  public:
    /// Whether a call is to do its work, or to fail since a script says so.
    enum class Fate { succeeds, fails };

    /// Makes two streams and an event a device, and frees nothing: the process ends after it.
    Every(const Runtime& runtime, unsigned thread);

    /// The function of that name, with these arguments. Its result, or -1 where the libraries have no such function.
    template <typename Signature, typename... Arguments>
    int call(const char* name, Arguments... arguments) {
        auto* function = reinterpret_cast<Signature*>(find(name));
        if (function == nullptr) return -1;
        return caller.count([&] { return function(arguments...); });
    }
    template <typename Signature, typename... Arguments>
    int call(Fate fate, const char* name, Arguments... arguments) {
        if (fate == Fate::fails && find(name) != nullptr) fail_next();
        return call<Signature>(name, arguments...);
    }

    /// `body(name, fate)` with both fates for each function.
    template <typename Body>
    void each(std::initializer_list<const char*> names, Body&& body) {
        for (const char* name : names) {
            body(name, Fate::succeeds);
            body(name, Fate::fails);
        }
    }

    /// Turns to the other device, so that the families' calls are not all on one.
    void turn_device();
    int device() const { return device_; }

    /// A stream of the device, the legacy one by two of its handles, or the thread's own: another each time.
    void* stream();
    void* own_stream() { return own_streams_[size_t(device_)][0]; }
    void* event() const { return events_[size_t(device_)]; }
    static void* no_stream() { return reinterpret_cast<void*>(uintptr_t(0x5d0200ffff0)); }

    /// Another number each time: up to some ten thousand, and beyond 32 bits.
    uint32_t narrow() { return 4099 + 2 * thread_ + 34 * ++numbers_; }
    uint64_t wide() { return (uint64_t(1 + numbers_ % 3) << 32) + narrow(); }
    /// Within what a launch may have; no two alike within some hundred calls.
    Dim3 grid() { return {65'537 + narrow(), 3 + numbers_ % 4093, 5 + numbers_ % 61}; }
    Dim3 block() { return {1 + narrow() % 1024, 1 + numbers_ % 7, 1 + numbers_ % 64}; }

    void* device_memory() const { return memory_; }
    char* host_memory() { return host_; }

    /// For what is called by other means than call().
    void mark(const char* name) { called_.insert(name); }
    const std::set<std::string>& called() const { return called_; }
    const std::set<std::string>& missing() const { return missing_; }
    bool is_cuda_13() const { return is_cuda_13_; }

    Caller caller;
    std::vector<void*> functions;  ///< of modules and libraries, for driver launches

  private:
    void* find(const char* name);
    void fail_next();

    void* driver_ = nullptr;
    void (*fail_next_)(int) = nullptr;
    unsigned thread_;
    uint32_t numbers_ = 0;
    unsigned turn_ = 0;
    int device_ = 0;
    bool is_cuda_13_ = false;
    std::vector<std::vector<void*>> own_streams_;
    std::vector<void*> events_;
    void* memory_ = nullptr;
    char host_[256] = {};
    std::set<std::string> called_, missing_;
};

/// Registered under a name by call_every_name().
const void* every_symbol(size_t index);

void call_every_name(Every& every);
void call_every_device(Every& every);
void call_every_launch(Every& every, bool tail_jump);
void call_every_allocation(Every& every);
void call_every_copy(Every& every);
void call_every_synchronization(Every& every);
void call_every_graph(Every& every);

}  // namespace ingero::standin
