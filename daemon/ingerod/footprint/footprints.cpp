#include "daemon/ingerod/footprint/footprints.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/model/unique_fd.h"
#include "core/render/footprint.h"
#include "daemon/ingerod/footprint/footprint_probes.h"
#include "daemon/ingerod/footprint/footprint_tally.h"
#include "daemon/ingerod/footprint/syscall_names.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr uint64_t drain_period_us = 10'000;
/// A storm of a target's holds up nobody else: what finds no room in the ring meanwhile is counted.
constexpr size_t records_a_turn = 4'096;
/// At the end, when nothing more is written: more than the ring holds.
constexpr size_t all_records = 1 << 20;

bool has_exited(const UniqueFd& pidfd) {
    pollfd wait{pidfd.get(), POLLIN, 0};
    return poll(&wait, 1, 0) > 0;
}

}  // namespace

class Footprints::Recording final : public FootprintRecording {
  public:
    Recording(const Footprints& owner, const Caller& caller, Process process, UniqueFd pidfd,
              std::unique_ptr<FootprintProbes> probes)
        : all_(owner.recordings_),
          node_(owner.host_.node),
          caller_(caller),
          process_(std::move(process)),
          pidfd_(std::move(pidfd)),
          probes_(std::move(probes)),
          begun_ns_(ClockTriple::now().realtime_ns) {
        all_->insert(this);
        timer_ = owner.loop_.add_periodic(
            drain_period_us, [this] { drain(records_a_turn); }, drain_period_us / 2);
    }
    ~Recording() override { all_->erase(this); }

    const Caller& caller() const { return caller_; }

    bool has_ended() const override {
        // One that slept all the time, and was killed, was never seen to do anything.
        return probes_->has_begun() ? probes_->losses().live == 0 : has_exited(pidfd_);
    }

    json finish() override {
        timer_.reset();
        probes_->stop();
        const uint64_t ended_ns = ClockTriple::now().realtime_ns;
        drain(all_records);
        tally_.finish();
        Footprint footprint;
        footprint.process = process_;
        footprint.window = {begun_ns_, ended_ns};
        put_calls(footprint);
        put_losses(footprint.losses);
        tally_.write(footprint);
        return footprint_json(footprint, node_);
    }

  private:
    void drain(size_t most) {
        probes_->consume(most, [this](const ingero_footprint_record& record, std::span<const char> data) {
            tally_.add(record, data);
        });
    }

    void put_calls(Footprint& footprint) {
        std::map<std::pair<uint16_t, uint16_t>, FootprintCall> calls;
        for (const auto& [key, row] : probes_->calls()) {
            FootprintCall& call = calls[{key.abi, key.number}];
            call.count += row.entered;
            call.returned += row.returned;
            call.total_ns += row.total_ns;
            tally_.add_calls(key.tgid, row.entered);
        }
        for (const auto& [key, count] : probes_->errors()) {
            const auto call = calls.find({key.abi, key.number});
            if (call != calls.end()) call->second.errors[static_cast<int>(key.error)] += count;
        }
        for (auto& [key, call] : calls) {
            const auto [abi, number] = key;
            call.abi = abi_name(abi);
            call.number = number;
            call.name = syscall_name(abi, number);
            if (abi == 0 && number == SYS_io_uring_enter) footprint.losses.io_uring_calls = call.count;
            footprint.calls.push_back(std::move(call));
        }
    }

    void put_losses(FootprintLosses& losses) const {
        const ingero_footprint_losses lost = probes_->losses();
        losses.processes = lost.processes;
        losses.records = lost.records;
        losses.unreadable = lost.unreadable;
        losses.calls = lost.calls + probes_->missed();
        losses.untimed = lost.untimed;
        losses.errors = lost.errors;
        losses.other_users = lost.other_users;
        losses.compat_calls = lost.compat;
    }

    const std::shared_ptr<std::set<Recording*>> all_;
    const std::string node_;
    const Caller caller_;
    const Process process_;
    const UniqueFd pidfd_;
    std::unique_ptr<FootprintProbes> probes_;
    FootprintTally tally_;
    const uint64_t begun_ns_;
    EventLoop::Source timer_;
};

Footprints::Footprints(EventLoop& loop, const ProcFs& proc, Host host)
    : loop_(loop), proc_(proc), host_(std::move(host)), recordings_(std::make_shared<std::set<Recording*>>()) {}

Footprints::~Footprints() = default;

Result<void> Footprints::check_room(const Caller& caller) const {
    const auto count = [&](auto&& matches) {
        return static_cast<size_t>(std::count_if(recordings_->begin(), recordings_->end(),
                                                 [&](const Recording* held) { return matches(held->caller()); }));
    };
    const auto user = [&](const Caller& one) { return host_.owner_of ? host_.owner_of(one.uid) : one.uid; };
    constexpr const char* hint = "wait until one has ended";
    const size_t unprivileged = count([](const Caller& held) { return !held.sees_all; });
    if (recordings_->size() >= max_recordings || (!caller.sees_all && unprivileged >= max_unprivileged))
        return fail(ErrorCode::busy, "too many footprints are being recorded", hint);
    if (!caller.sees_all && count([&](const Caller& held) { return user(held) == user(caller); }) >= max_of_a_user)
        return fail(ErrorCode::busy, "this user records a footprint already", hint);
    return {};
}

Result<std::unique_ptr<FootprintRecording>> Footprints::begin(const Caller& caller, uint32_t pid) {
    const std::string name = "process " + std::to_string(pid);
    // First: what is read of the process then is of the one that is followed.
    UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    auto process = proc_.read_process(pid);
    if (!process || !pidfd || has_exited(pidfd))
        return fail(ErrorCode::not_found, "there is no " + name, "name a running one");
    if (!caller.sees_all && process->uid != caller.uid)
        return fail(ErrorCode::denied, name + " is another user's",
                    "ask as its user, as root, or as a member of group ingero");
    if (const auto why = host_.excluded(*process))
        return fail(ErrorCode::denied, name + " must not be traced: " + *why, "see [capture] in ingerod.conf(5)");
    if (auto room = check_room(caller); !room) return tl::unexpected(room.error());
    auto probes =
        FootprintProbes::load(process->key, caller.sees_all ? std::nullopt : std::optional<uint32_t>(caller.uid));
    if (!probes) return tl::unexpected(probes.error());
    return std::make_unique<Recording>(*this, caller, std::move(*process), std::move(pidfd), std::move(*probes));
}

}  // namespace ingero
