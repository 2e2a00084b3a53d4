#include "daemon/ingerod/footprint/footprint_probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <cstring>

#include "daemon/ingerod/probes/kernel/bpf_syscall.h"
#include "daemon/ingerod/probes/kernel/libbpf_log.h"
#include "footprint_bpf.skel.h"

namespace ingero {

namespace {

struct SkeletonDeleter {
    void operator()(footprint_bpf* skeleton) const { footprint_bpf__destroy(skeleton); }
};
struct RingDeleter {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

/// Whatever the callback returns below 0 ends ring_buffer__consume(), with the record taken.
constexpr int enough = -ECANCELED;

Error load_error(int error_number) {
    const LibbpfWords& words = libbpf_words();
    const bool denied = words.verifier.empty() && (error_number == EPERM || error_number == EACCES);
    const std::string why = words.verifier.empty() ? words.last : "the kernel's verifier refused " + words.verifier;
    return {denied ? ErrorCode::denied : ErrorCode::internal,
            errno_message("cannot load the BPF programs of a footprint", error_number) +
                (why.empty() ? "" : " (" + why + ")"),
            denied ? "ingerod needs CAP_BPF and CAP_PERFMON" : "footprints need Linux 6.1 or newer, with BTF"};
}

template <class Key, class Value>
std::vector<std::pair<Key, Value>> rows_of(const bpf_map* map) {
    std::vector<std::pair<Key, Value>> rows;
    const int fd = bpf_map__fd(map);
    Key key{}, next{};
    Value value{};
    for (bool first = true; bpf_map_get_next_key(fd, first ? nullptr : &key, &next) == 0; first = false) {
        key = next;
        if (bpf_map_lookup_elem(fd, &key, &value) == 0) rows.emplace_back(key, value);
    }
    return rows;
}

}  // namespace

struct FootprintProbes::Impl {
    std::unique_ptr<footprint_bpf, SkeletonDeleter> skeleton;
    std::unique_ptr<ring_buffer, RingDeleter> ring;
    const Consumer* consumer = nullptr;
    size_t left = 0;
    size_t taken = 0;

    static int on_record(void* context, void* data, size_t size) {
        Impl& impl = *static_cast<Impl*>(context);
        ingero_footprint_record record;
        std::memcpy(&record, data, sizeof record);
        impl.taken++;
        const size_t bytes = size_t{record.base_bytes} + record.text_bytes;
        if (size >= sizeof record + bytes)
            (*impl.consumer)(record, {static_cast<const char*>(data) + sizeof record, bytes});
        return --impl.left == 0 ? enough : 0;
    }
};

FootprintProbes::FootprintProbes(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

FootprintProbes::~FootprintProbes() = default;

Result<std::unique_ptr<FootprintProbes>> FootprintProbes::load(const ProcessKey& root,
                                                               std::optional<uint32_t> only_owner) {
    listen_to_libbpf();
    auto impl = std::make_unique<Impl>();
    impl->skeleton.reset(footprint_bpf__open());
    if (!impl->skeleton) return tl::unexpected<Error>(load_error(errno));
    footprint_bpf& skeleton = *impl->skeleton;
    skeleton.rodata->root_pid = root.pid;
    skeleton.rodata->root_start = root.start_ns / INGERO_START_UNIT_NS;
    skeleton.rodata->only_owner = only_owner ? 1 : 0;
    skeleton.rodata->owner_uid = only_owner.value_or(0);
    if (const int error = footprint_bpf__load(&skeleton); error != 0) return tl::unexpected<Error>(load_error(-error));
    if (auto ran = run_program_once(bpf_program__fd(skeleton.progs.find_pid_namespace)); !ran)
        return tl::unexpected(ran.error());
    bpf_program__set_autoattach(skeleton.progs.find_pid_namespace, false);
    impl->ring.reset(ring_buffer__new(bpf_map__fd(skeleton.maps.ring), &Impl::on_record, impl.get(), nullptr));
    if (!impl->ring) return tl::unexpected<Error>(load_error(errno));
    if (const int error = footprint_bpf__attach(&skeleton); error != 0)
        return tl::unexpected<Error>(load_error(-error));
    return std::unique_ptr<FootprintProbes>(new FootprintProbes(std::move(impl)));
}

size_t FootprintProbes::consume(size_t most, const Consumer& consumer) {
    impl_->consumer = &consumer;
    impl_->left = most;
    impl_->taken = 0;
    if (most > 0) ring_buffer__consume(impl_->ring.get());
    impl_->consumer = nullptr;
    return impl_->taken;
}

ingero_footprint_losses FootprintProbes::losses() const {
    return impl_->skeleton->bss->losses;
}

bool FootprintProbes::has_begun() const {
    return impl_->skeleton->bss->root_is_found != 0;
}

std::vector<std::pair<ingero_footprint_call, ingero_footprint_calls>> FootprintProbes::calls() const {
    return rows_of<ingero_footprint_call, ingero_footprint_calls>(impl_->skeleton->maps.calls);
}

std::vector<std::pair<ingero_footprint_error, uint64_t>> FootprintProbes::errors() const {
    return rows_of<ingero_footprint_error, uint64_t>(impl_->skeleton->maps.errors);
}

uint64_t FootprintProbes::missed() const {
    uint64_t missed = 0;
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, impl_->skeleton->obj) {
        bpf_prog_info info{};
        uint32_t size = sizeof info;
        if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) == 0) missed += info.recursion_misses;
    }
    return missed;
}

void FootprintProbes::stop() {
    footprint_bpf__detach(impl_->skeleton.get());
}

}  // namespace ingero
