// Calls that have been entered and have not returned, read from the kernel side by going over all threads of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/model/in_flight_call.h"
#include "core/model/result.h"

struct bpf_link;
struct bpf_program;

namespace ingero {

/// One thread at a time.
class InFlightReader {
  public:
    /// Of the program "list_in_flight"; `floor_ns` is its variable. Both must outlive this. Errors: internal.
    static Result<InFlightReader> open(const bpf_program* program, uint64_t* floor_ns);

    /// Visits the calls in flight for at least `floor_ns`, thread by thread, each thread's outermost first. Takes about
    /// 0.1 µs a thread of the host. Errors: internal.
    Result<void> read(uint64_t floor_ns, const std::function<void(const InFlightCall&)>& visit) const;

  private:
    struct LinkDeleter {
        void operator()(bpf_link* link) const;
    };
    std::unique_ptr<bpf_link, LinkDeleter> link_;
    uint64_t* floor_ns_ = nullptr;
};

/// A call from the bytes of one; false where there are too few.
bool decode_in_flight(std::span<const std::byte> bytes, InFlightCall& ret_call);

}  // namespace ingero
