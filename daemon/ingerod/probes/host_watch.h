// What the kernel does to threads that call: their waits between calls too, block requests, memory reclaim, interrupts,
// sockets. The kernel side is bpf/watch.h, in the object of CallProbes.
#pragma once

#include <bpf/libbpf.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/model/result.h"

namespace ingero {

class HostWatch {
  public:
    /// Before the object is loaded: leaves out the programs whose tracepoint this kernel does not have, or all of them
    /// where it is not to have any.
    static void prepare(bpf_object* object, bool has_tracepoints);
    /// Once it is loaded; the words are the kernel side's, mapped, and stay the caller's. Errors: internal.
    static Result<HostWatch> open(bpf_object* object, uint64_t* floor_ns, const uint64_t* lost);

    /// Waits that take at least this long are recorded one by one, the others summed; 0: nothing is watched.
    void set_floor(uint64_t ns);
    /// Attaches to what is no part of a call's own time. Once somebody calls: until then nothing of it is of use.
    /// Logs what cannot be attached to; missing() lists it.
    void begin();
    /// Tracepoints that are not there, or cannot be attached to, each with the reason. Empty until begin().
    const std::vector<std::string>& missing() const { return missing_; }
    /// Of waits and socket events, since load.
    uint64_t lost() const;

  private:
    struct LinkDeleter {
        void operator()(bpf_link* link) const { bpf_link__destroy(link); }
    };

    HostWatch() = default;

    bpf_object* object_ = nullptr;
    uint64_t* floor_ns_ = nullptr;
    const uint64_t* lost_ = nullptr;
    bool begun_ = false;
    std::vector<std::unique_ptr<bpf_link, LinkDeleter>> links_;
    std::vector<std::string> missing_;
};

}  // namespace ingero
