// Calls as they come, for those who ask: `trace` of the control protocol. The ingest thread offers each call; what
// passes a subscriber's filter is kept for it, and what it is too slow for is counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/model/in_flight_call.h"
#include "core/model/process/process.h"
#include "core/model/result.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/control/control_backend.h"
#include "daemon/ingerod/limits/uid_owners.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/loop/wake_fd.h"

namespace ingero {

/// Which calls a subscriber asks for.
struct TraceFilter {
    std::optional<uint32_t> pid;
    std::set<OpId> ops;  ///< empty: all
    uint64_t min_duration_ns = 0;
    bool errors = false;     ///< only calls that failed
    bool in_flight = false;  ///< only calls in flight
};

/// The parameters of a `trace` request. Errors: bad_request.
Result<TraceFilter> parse_trace_filter(const nlohmann::json& params);

class LiveTrace {
  public:
    /// A function handle of a process, and what it is called.
    using Handle = std::pair<ProcessKey, uint64_t>;
    using Names = std::map<Handle, std::string>;

    struct Host {
        /// nullptr where the process is not traced.
        std::function<const Process*(const ProcessKey&)> find_process;
        /// Visits all of the host.
        std::function<Result<void>(uint64_t floor_ns, const std::function<void(const InFlightCall&)>& visit)> in_flight;
        /// Asks for names; `done` is called once, on the loop thread, with those that are known.
        std::function<void(std::vector<Handle>, std::function<void(Names)> done)> names;
        OwnerOf owner_of = {};
    };

    LiveTrace(EventLoop& loop, Host host, uint64_t in_flight_floor_ns);
    ~LiveTrace();

    /// Errors: busy (too many subscribers).
    Result<std::unique_ptr<LiveStream>> subscribe(const Caller& caller, TraceFilter filter,
                                                  std::function<void()> on_ready);
    size_t subscribers() const { return subscribers_.size(); }
    /// Calls in flight that one subscriber gets at a look; what is beyond them counts as skipped.
    static constexpr size_t max_in_flight = 1'024;
    void set_in_flight_floor(uint64_t ns) { in_flight_floor_ns_ = ns; }

    /// Ingest thread: a call was read.
    void offer(const Event& call);
    /// Ingest thread: a turn is over; what was offered goes to the loop thread.
    void flush();

  private:
    class Subscriber;
    /// What the two threads share of a subscriber.
    struct Staged {
        std::vector<Event> calls;
        size_t own = 0, unknown = 0;  ///< of these, by whether their processes are known to be the caller's
        uint64_t skipped = 0;
        std::map<ProcessKey, uint64_t> skipped_unknown;
        std::map<ProcessKey, bool> visible;  ///< as far as known
        size_t strangers = 0;                ///< of these, not visible
    };

    void take_staged();
    void look_in_flight();
    void drop(Subscriber* subscriber);

    EventLoop& loop_;
    Host host_;
    uint64_t in_flight_floor_ns_;
    WakeFd wake_;
    EventLoop::Source wake_source_;
    EventLoop::Source in_flight_timer_;
    EventLoop::Source first_look_;
    bool in_flight_fails_ = false;
    std::atomic<bool> active_{false};
    std::set<Subscriber*> subscribers_;  ///< loop thread only
    Mutex mutex_;
    std::map<Subscriber*, Staged> staged_ INGERO_GUARDED_BY(mutex_);  ///< of all `subscribers_`
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ingero
