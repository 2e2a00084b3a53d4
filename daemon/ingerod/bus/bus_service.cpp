#include "daemon/ingerod/bus/bus_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/ingerod/bus/bus_connection.h"
#include "daemon/ingerod/bus/bus_objects.h"
#include "daemon/ingerod/bus/bus_value.h"
#include "daemon/ingerod/bus/manager_object.h"
#include "daemon/ingerod/bus/signal_queue.h"
#include "daemon/ingerod/control/peer.h"

namespace ingero {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* bus_name = "io.ingero.Ingero1";
constexpr size_t most_processes = 4'096;
constexpr size_t most_incidents = 256;
/// What one turn of the loop may take.
constexpr milliseconds turn{2};
/// How soon after a look at the open incidents the next one comes, in a storm.
constexpr milliseconds incidents_pause{10};
/// The same for processes, state and probes.
constexpr milliseconds state_pause{250};
constexpr milliseconds losses_pause{1'000};

uint64_t us_until(Clock::time_point due, Clock::time_point now) {
    if (due <= now) return 0;
    return static_cast<uint64_t>(std::chrono::ceil<std::chrono::microseconds>(due - now).count());
}

/// Something that is to be looked at, now and then.
struct Look {
    bool wanted = false;
    Clock::time_point not_before{};

    bool due(Clock::time_point now) const { return wanted && now >= not_before; }
    void done(Clock::time_point now, milliseconds pause) {
        wanted = false;
        not_before = now + pause;
    }
};

}  // namespace

/// Work is done in rounds: each finds what there is to send, sends as much of it as the burst, the bus and the turn
/// allow, and sets when the next round is due. Nothing to send: no round.
struct BusService::Impl {
    Impl(EventLoop& event_loop, BusBackend& bus_backend, BusOptions bus_options)
        : loop(event_loop),
          backend(bus_backend),
          options(std::move(bus_options)),
          group(find_group(options.group)),
          queue(options.waiting),
          burst(options.burst, options.burst_period),
          connection(loop, bus_name, options.retry,
                     {.connected = [this] { on_connected(); },
                      .lost = [this] { on_lost(); },
                      .drained = [this] { run_soon(); }}) {}

    void on_connected() {
        manager = std::make_unique<ManagerObject>(connection.bus(), backend, group);
        sent_losses = backend.figures().events_lost;
        incidents_look = state_look = losses_look = {.wanted = true};
        published = false;
        run_soon();
    }

    void on_lost() {
        soon = false;
        next_round.reset();
        queue.clear();  // who comes back reads how things stand
        processes.clear();
        incidents.clear();
        manager.reset();
        published = false;
    }

    void run_soon() {
        if (!manager || soon) return;
        soon = true;
        next_round = loop.defer([this] { round(); });
    }

    void wake(Look& look) {
        look.wanted = true;
        run_soon();
    }

    void round() {
        soon = false;
        next_round.reset();
        const auto begun = Clock::now();
        try {
            look(begun);
            const bool more = published ? send(begun) : publish(begun);
            if (more) return run_soon();
        } catch (const std::exception& error) {
            return connection.fail(error.what());
        }
        wait(Clock::now());
    }

    void look(Clock::time_point now) {
        if (incidents_look.due(now)) {
            incidents_look.done(now, incidents_pause);
            want_incidents();
        }
        if (state_look.due(now)) {
            state_look.done(now, state_pause);
            want_processes();
            properties_changed = manager->look_for_changes();
        }
    }

    void want_incidents() {
        std::map<std::string, Incident> wanted;
        for (Incident& incident : backend.open_incidents()) {
            if (wanted.size() == most_incidents) break;
            std::string path = incident_path(incident.id);
            wanted.emplace(std::move(path), std::move(incident));
        }
        incidents.want(std::move(wanted));
    }

    void want_processes() {
        std::map<std::string, PublicProcess> wanted;
        for (PublicProcess& process : backend.public_processes()) {
            if (wanted.size() == most_processes) break;
            std::string path = process_path(process.key);
            wanted.emplace(std::move(path), std::move(process));
        }
        processes.want(std::move(wanted));
    }

    /// Before anything is answered: adds all objects, without signals. True: more of it in the next turn.
    bool publish(Clock::time_point begun) {
        while (!incidents.settled() || !processes.settled()) {
            if (Clock::now() - begun >= turn) return true;
            if (!incidents.settled())
                incidents.step(connection.bus(), false);
            else
                processes.step(connection.bus(), false);
        }
        published = true;
        connection.begin();
        return true;
    }

    /// True: more could be sent in the next turn; false: not before the next grant, look or change.
    bool send(Clock::time_point begun) {
        // A part of each burst is left to processes, so that a storm of incidents does not hide them for ever.
        const size_t for_processes = std::max<size_t>(options.burst / 5, 1);
        waits_for_burst = false;
        for (auto now = begun; !connection.output_waits(); now = Clock::now()) {
            if (now - begun >= turn) return true;
            // An incident's signals leave only once its object is there.
            const bool about_incidents = !incidents.settled() || (!queue.empty() && !incidents_look.wanted);
            const bool about_losses = losses_look.due(now) && losses_grew();
            if (about_incidents || about_losses || properties_changed) {
                if (burst.take(now, for_processes)) {
                    send_one(about_incidents, about_losses, now);
                    continue;
                }
                waits_for_burst = true;
            }
            if (processes.settled()) break;
            if (!burst.take(now)) {
                waits_for_burst = true;
                break;
            }
            processes.step(connection.bus(), true);
        }
        return false;
    }

    /// Losses and properties first: they come at most a few times a second.
    void send_one(bool about_incidents, bool about_losses, Clock::time_point now) {
        if (about_losses) {
            losses_look.done(now, losses_pause);
            sent_losses = losses;
            manager->emitEventsLostChanged(losses);
        } else if (properties_changed) {
            properties_changed = false;
            manager->emit_changes();
        } else if (about_incidents && !incidents.settled()) {
            incidents.step(connection.bus(), true);
        } else if (about_incidents) {
            manager->emit(*queue.pop());
        }
    }

    bool losses_grew() {
        losses = backend.figures().events_lost;
        if (losses <= sent_losses) losses_look.wanted = false;
        return losses > sent_losses;
    }

    /// Sets the time of the next round, where there will be one without a call from outside.
    void wait(Clock::time_point now) {
        if (!manager || connection.output_waits()) return;  // drained() goes on
        std::optional<Clock::time_point> due;
        const auto by = [&](Clock::time_point time) { due = due ? std::min(*due, time) : time; };
        if (waits_for_burst) by(burst.next_grant());
        for (const Look* one : {&incidents_look, &state_look, &losses_look})
            if (one->wanted) by(one->not_before);
        if (due) next_round = loop.add_timer(us_until(*due, now), [this] { round(); });
    }

    EventLoop& loop;
    BusBackend& backend;
    const BusOptions options;
    const std::optional<gid_t> group;
    SignalQueue queue;
    Burst burst;
    Look incidents_look;
    Look state_look;
    Look losses_look;
    uint64_t losses = 0;
    uint64_t sent_losses = 0;
    bool properties_changed = false;
    bool published = false;  ///< all objects there were when the connection came
    bool waits_for_burst = false;
    bool soon = false;  ///< the next round is in the next turn of the loop
    EventLoop::Source next_round;
    std::unique_ptr<ManagerObject> manager;
    ObjectSet<ProcessObject> processes;
    ObjectSet<IncidentObject> incidents;
    BusConnection connection;  ///< ends first, and has the rest let go of the bus
};

BusService::BusService(EventLoop& loop, BusBackend& backend, BusOptions options)
    : impl_(std::make_unique<Impl>(loop, backend, std::move(options))) {}

BusService::~BusService() = default;

void BusService::emit(const IncidentChange& change) {
    if (!impl_->manager) return;
    impl_->queue.push(change);
    impl_->wake(impl_->incidents_look);
}

void BusService::straggler_detected(const Straggler& straggler) {
    if (!impl_->manager) return;
    impl_->queue.detected(straggler);
    impl_->wake(impl_->incidents_look);
}

void BusService::straggler_resolved(const std::string& id, uint64_t at_realtime_ns) {
    if (!impl_->manager) return;
    impl_->queue.resolved(id, at_realtime_ns);
    impl_->wake(impl_->incidents_look);
}

void BusService::changed() {
    if (!impl_->manager) return;
    impl_->losses_look.wanted = true;
    impl_->wake(impl_->state_look);
}

bool BusService::connected() const {
    return impl_->published;
}

uint64_t BusService::dropped_signals() const {
    return impl_->queue.dropped();
}

}  // namespace ingero
