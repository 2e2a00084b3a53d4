#include "daemon/ingerod/probes/in_flight.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <unistd.h>

#include <atomic>

#include "bpf/event.h"
#include "core/model/unique_fd.h"

namespace ingero {

namespace {

constexpr size_t calls_a_read = 64;

}  // namespace

void InFlightReader::LinkDeleter::operator()(bpf_link* link) const {
    bpf_link__destroy(link);
}

Result<InFlightReader> InFlightReader::open(const bpf_program* program, uint64_t* floor_ns) {
    InFlightReader reader;
    reader.link_.reset(bpf_program__attach_iter(program, nullptr));
    if (!reader.link_) return fail(ErrorCode::internal, errno_message("cannot list calls in flight", errno));
    reader.floor_ns_ = floor_ns;
    return reader;
}

Result<void> InFlightReader::read(uint64_t floor_ns, const std::function<void(const InFlightCall&)>& visit) const {
    std::atomic_ref<uint64_t>(*floor_ns_).store(floor_ns, std::memory_order_relaxed);
    const UniqueFd list(bpf_iter_create(bpf_link__fd(link_.get())));
    if (!list) return fail(ErrorCode::internal, errno_message("cannot list calls in flight", errno));
    std::vector<std::byte> bytes(calls_a_read * sizeof(ingero_in_flight_call));
    size_t filled = 0;
    for (;;) {
        const ssize_t got = ::read(list.get(), bytes.data() + filled, bytes.size() - filled);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) return fail(ErrorCode::internal, errno_message("cannot list calls in flight", errno));
        if (got == 0) return {};
        filled += static_cast<size_t>(got);
        size_t at = 0;
        for (; filled - at >= sizeof(ingero_in_flight_call); at += sizeof(ingero_in_flight_call)) {
            InFlightCall call;
            if (decode_in_flight(std::span(bytes).subspan(at, sizeof(ingero_in_flight_call)), call)) visit(call);
        }
        std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.begin() + static_cast<std::ptrdiff_t>(filled),
                  bytes.begin());
        filled -= at;
    }
}

}  // namespace ingero
