#include "daemon/ingerod/live/live_trace.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "core/model/op.h"
#include "core/model/time.h"
#include "core/render/trace.h"
#include "core/wire/utf8.h"
#include "daemon/ingerod/limits/token_bucket.h"
#include "daemon/ingerod/live/subscriptions.h"

namespace ingero {

using nlohmann::json;

namespace {

/// Calls kept for one subscriber between two turns of a thread, and as many of processes that may be others'.
constexpr size_t max_staged = 4'096;
/// Processes of others that are known to a subscriber; the calls of more may be staged.
constexpr size_t max_strangers = 1'024;
constexpr size_t max_own = 4'096;
/// Calls that wait for a subscriber to read.
constexpr size_t max_waiting = 8'192;
/// What a reader gets a second, and in one go: more can be neither read nor sent without harm to the daemon.
constexpr uint64_t rows_at_once = 4'096;
constexpr uint64_t row_period_ns = 100'000;
/// Whole rows, with the longest names, stay below 256 KiB.
constexpr size_t rows_a_chunk = 128;
constexpr size_t max_name_bytes = 512;
constexpr size_t max_names = 8'192;
/// A name that was not known is asked for again for calls that began so much later; each time twice as much, up to
/// this.
constexpr uint64_t ask_again_ns = 1'000'000'000;
constexpr uint64_t ask_again_at_most_ns = 60'000'000'000;
constexpr uint64_t look_period_us = 1'000'000;
constexpr uint64_t look_slack_us = 50'000;
constexpr size_t max_ops = 64;
constexpr size_t max_op_bytes = 64;

bool is_launch(const Event& call) {
    const Op* op = find_op(call.op);
    return op && op->op_class == OpClass::launch;
}

Result<std::set<OpId>> ops_named(const json& names) {
    std::set<OpId> ids;
    if (!names.is_array() || names.size() > max_ops)
        return fail(ErrorCode::bad_request, "parameter is not a list of at most 64 names: ops");
    for (const json& name : names) {
        if (!name.is_string() || name.get_ref<const std::string&>().size() > max_op_bytes)
            return fail(ErrorCode::bad_request, "parameter contains something other than a name: ops");
        const size_t before = ids.size();
        for (const Op& op : all_ops())
            if (op.name == name.get_ref<const std::string&>()) ids.insert(op.id);
        if (ids.size() == before)
            return fail(ErrorCode::bad_request,
                        "there is no operation named " + to_valid_utf8(name.get_ref<const std::string&>()),
                        "'ingeroctl stats' and 'ingeroctl probes' list the operations");
    }
    return ids;
}

}  // namespace

Result<TraceFilter> parse_trace_filter(const json& params) {
    TraceFilter filter;
    for (const auto& [key, value] : params.items()) {
        const bool is_number = value.is_number_unsigned();
        if (key == "pid" && is_number && value.get<uint64_t>() - 1 < INT32_MAX) {
            filter.pid = value.get<uint32_t>();
        } else if (key == "min_duration_ns" && is_number) {
            filter.min_duration_ns = value.get<uint64_t>();
        } else if (key == "errors" && value.is_boolean()) {
            filter.errors = value.get<bool>();
        } else if (key == "in_flight" && value.is_boolean()) {
            filter.in_flight = value.get<bool>();
        } else if (key == "ops") {
            auto ops = ops_named(value);
            if (!ops) return tl::unexpected(ops.error());
            filter.ops = std::move(*ops);
        } else {
            return fail(ErrorCode::bad_request, "unknown parameter, or a value that it does not accept: " +
                                                    to_valid_utf8(key.substr(0, max_op_bytes)));
        }
    }
    return filter;
}

class LiveTrace::Subscriber final : public LiveStream {
  public:
    Subscriber(LiveTrace& trace, const Caller& caller, TraceFilter filter, std::function<void()> on_ready)
        : trace_(trace),
          alive_(trace.alive_),
          caller_(caller),
          filter_(std::move(filter)),
          on_ready_(std::move(on_ready)),
          allowance_(rows_at_once, row_period_ns) {}
    ~Subscriber() override {
        if (*alive_) trace_.drop(this);
    }

    const Caller& caller() const { return caller_; }

    /// Ingest thread.
    void stage(const Event& call, Staged& staged) const {
        if (filter_.in_flight || !wants(call) || (filter_.errors && call.return_code == 0)) return;
        const auto known = staged.visible.find(call.process());
        const bool is_own = caller_.sees_all || (known != staged.visible.end() && known->second);
        if (!is_own && known != staged.visible.end()) return;
        size_t& count = is_own ? staged.own : staged.unknown;
        if (count < max_staged)
            staged.calls.push_back(call), ++count;
        else if (is_own)
            staged.skipped++;
        else if (staged.skipped_unknown.size() < max_strangers || staged.skipped_unknown.contains(call.process()))
            staged.skipped_unknown[call.process()]++;
    }

    /// Loop thread: takes over what was staged.
    void unstage(Staged& staged) {
        fresh_.swap(staged.calls);
        staged.calls.clear();
        staged.own = staged.unknown = 0;
        skipped_ += std::exchange(staged.skipped, 0);
        for (const auto& [process, calls] : staged.skipped_unknown)
            if (may_see(trace_.host_.find_process(process))) skipped_ += calls;
        staged.skipped_unknown.clear();
        learn(staged);
    }
    /// Loop thread. Not on_ready_(), which may end this.
    bool accept(const ClockTriple& clock) {
        for (const Event& call : fresh_) {
            TracedCall traced;
            traced.call = call;
            accept(std::move(traced), clock);
        }
        fresh_.clear();
        return is_ready();
    }

    /// Loop thread: a process may have become another user's, or be gone.
    void forget(Staged& staged) const {
        auto& visible = staged.visible;
        for (auto one = visible.begin(); one != visible.end();) {
            const Process* process = trace_.host_.find_process(one->first);
            if (process) one->second = may_see(process);
            one = process ? std::next(one) : visible.erase(one);
        }
        staged.strangers = static_cast<size_t>(
            std::count_if(visible.begin(), visible.end(), [](const auto& one) { return !one.second; }));
    }

    /// Calls in flight that this one may not see take no room from those that it may.
    void look_at(const InFlightCall& call, const Process* process) {
        if (filter_.errors || !wants(call.call) || !may_see(process)) return;
        if (in_flight_.size() < max_in_flight)
            in_flight_.push_back(call);
        else
            cut_++;
    }
    bool end_look(const ClockTriple& clock) {
        std::map<std::pair<uint32_t, uint64_t>, uint64_t> still;
        for (const InFlightCall& one : in_flight_) {
            const std::pair key{one.call.tid, one.call.start_ns};
            const auto known = reported_.find(key);
            // Reported when it is found, and again whenever it has lasted twice as long.
            const bool is_due = known == reported_.end() || one.call.duration_ns >= known->second;
            still[key] = is_due ? 2 * one.call.duration_ns : known->second;
            if (!is_due) continue;
            TracedCall traced;
            traced.call = one.call;
            traced.activity = one.activity;
            traced.activity_ns = one.activity_ns;
            accept(std::move(traced), clock);
        }
        reported_ = std::move(still);
        in_flight_.clear();
        // Counted as they come to be too many, not at each look.
        skipped_ += cut_ - std::min(cut_, cut_before_);
        cut_before_ = std::exchange(cut_, 0);
        return is_ready();
    }

    std::optional<json> next() override {
        if (!is_ready() || !names_are_known()) return std::nullopt;
        std::vector<TracedCall> rows;
        for (; !waiting_.empty() && rows.size() < rows_a_chunk; waiting_.pop_front()) {
            TracedCall& traced = waiting_.front();
            if (is_launch(traced.call)) {
                const auto name = names_.find({traced.call.process(), traced.call.args[0]});
                if (name != names_.end() && !name->second.text.empty()) traced.kernel = name->second.text;
            }
            rows.push_back(std::move(traced));
        }
        return trace_chunk(rows, std::exchange(skipped_, 0));
    }

    void report_ready() { on_ready_(); }

  private:
    bool wants(const Event& call) const {
        if (filter_.pid && call.tgid != *filter_.pid) return false;
        return call.duration_ns >= filter_.min_duration_ns && (filter_.ops.empty() || filter_.ops.contains(call.op));
    }
    bool may_see(const Process* process) const { return caller_.sees_all || (process && process->uid == caller_.uid); }
    bool is_ready() const { return !waiting_.empty() || skipped_ != 0; }

    /// Whose the processes are of which there are calls.
    void learn(Staged& staged) const {
        if (caller_.sees_all) return;
        for (const Event& call : fresh_) {
            if (staged.visible.contains(call.process())) continue;
            const Process* process = trace_.host_.find_process(call.process());
            if (!process) continue;
            const bool is_own = may_see(process);
            const size_t strangers = staged.strangers;
            if (is_own ? staged.visible.size() - strangers >= max_own : strangers >= max_strangers) continue;
            staged.visible.emplace(call.process(), is_own);
            staged.strangers += !is_own;
        }
    }

    // What belongs to others does not even count.
    void accept(TracedCall traced, const ClockTriple& clock) {
        const Process* process = trace_.host_.find_process(traced.call.process());
        if (!may_see(process)) return;
        if (waiting_.size() >= max_waiting || !allowance_.take(clock.monotonic_ns)) {
            skipped_++;
            return;
        }
        if (process) traced.comm = process->comm;
        traced.start_realtime_ns = clock.to_realtime(traced.call.start_ns);
        waiting_.push_back(std::move(traced));
    }

    /// Of the rows to come; asks for those that are not.
    bool names_are_known() {
        if (asking_) return false;
        std::map<Handle, uint64_t> missing;
        for (size_t i = 0; i < std::min(waiting_.size(), rows_a_chunk); ++i) {
            const Event& call = waiting_[i].call;
            if (!is_launch(call)) continue;
            const Handle handle{call.process(), call.args[0]};
            const auto known = names_.find(handle);
            if (known == names_.end() || known->second.may_have_come(call)) {
                uint64_t& asked_ns = missing[handle];
                asked_ns = std::max(asked_ns, call.start_ns);
            }
        }
        if (missing.empty()) return true;
        if (names_.size() + missing.size() > max_names) names_.clear();
        asking_ = true;
        std::vector<Handle> handles;
        for (const auto& [handle, start_ns] : missing) handles.push_back(handle);
        trace_.host_.names(std::move(handles), [this, missing, here = std::weak_ptr<bool>(here_)](Names names) {
            if (here.expired()) return;
            asking_ = false;
            for (const auto& [handle, start_ns] : missing) {
                Name& name = names_[handle];
                name.text = names[handle].substr(0, max_name_bytes);
                name.asked_ns = start_ns;
                name.again_ns = std::min(name.again_ns == 0 ? ask_again_ns : 2 * name.again_ns, ask_again_at_most_ns);
            }
            report_ready();
        });
        return !asking_;
    }

    LiveTrace& trace_;
    const std::shared_ptr<bool> alive_;
    const Caller caller_;
    const TraceFilter filter_;
    const std::function<void()> on_ready_;
    // Loop thread only, from here on.
    std::vector<Event> fresh_;
    std::deque<TracedCall> waiting_;
    uint64_t skipped_ = 0;
    TokenBucket allowance_;
    struct Name {
        std::string text;       ///< empty: none was known
        uint64_t asked_ns = 0;  ///< start of the call that it was asked for
        uint64_t again_ns = 0;  ///< so much later it is asked for again
        /// The record of a name and that of a call take ways of their own.
        bool may_have_come(const Event& call) const { return text.empty() && call.start_ns >= asked_ns + again_ns; }
    };
    std::map<Handle, Name> names_;
    bool asking_ = false;
    /// Thread and start to how long it lasts when it is reported again.
    std::map<std::pair<uint32_t, uint64_t>, uint64_t> reported_;
    std::vector<InFlightCall> in_flight_;  ///< seen at this look
    uint64_t cut_ = 0;                     ///< that were more than max_in_flight
    uint64_t cut_before_ = 0;
    const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

LiveTrace::LiveTrace(EventLoop& loop, Host host, uint64_t in_flight_floor_ns)
    : loop_(loop),
      host_(std::move(host)),
      in_flight_floor_ns_(in_flight_floor_ns),
      wake_source_(loop.add_io(wake_.get(), EPOLLIN, [this](uint32_t) { take_staged(); })) {}

LiveTrace::~LiveTrace() {
    *alive_ = false;
}

Result<std::unique_ptr<LiveStream>> LiveTrace::subscribe(const Caller& caller, TraceFilter filter,
                                                         std::function<void()> on_ready) {
    if (auto admitted = admit(subscribers_, caller, host_.owner_of, "traces"); !admitted)
        return tl::unexpected(admitted.error());
    auto subscriber = std::make_unique<Subscriber>(*this, caller, std::move(filter), std::move(on_ready));
    {
        const Lock lock(mutex_);
        staged_.try_emplace(subscriber.get());
    }
    subscribers_.insert(subscriber.get());
    active_ = true;
    first_look_ = loop_.defer([this] { look_in_flight(); });
    if (!in_flight_timer_.active())
        in_flight_timer_ = loop_.add_periodic(
            look_period_us, [this] { look_in_flight(); }, look_slack_us);
    return subscriber;
}

void LiveTrace::drop(Subscriber* subscriber) {
    {
        const Lock lock(mutex_);
        staged_.erase(subscriber);
    }
    subscribers_.erase(subscriber);
    if (!subscribers_.empty()) return;
    active_ = false;
    in_flight_timer_.reset();
    first_look_.reset();
}

void LiveTrace::offer(const Event& call) {
    if (!active_.load(std::memory_order_relaxed)) return;
    const Lock lock(mutex_);
    for (auto& [subscriber, staged] : staged_) subscriber->stage(call, staged);
}

void LiveTrace::flush() {
    if (!active_.load(std::memory_order_relaxed)) return;
    {
        const Lock lock(mutex_);
        const auto is_empty = [](const auto& one) { return one.second.calls.empty() && one.second.skipped == 0; };
        if (std::all_of(staged_.begin(), staged_.end(), is_empty)) return;
    }
    wake_.ring();
}

void LiveTrace::take_staged() {
    wake_.drain();
    {
        const Lock lock(mutex_);
        for (auto& [subscriber, staged] : staged_) subscriber->unstage(staged);
    }
    const ClockTriple clock = ClockTriple::now();
    // One that is notified may end itself or others.
    for (Subscriber* subscriber : std::vector(subscribers_.begin(), subscribers_.end()))
        if (subscribers_.contains(subscriber) && subscriber->accept(clock)) subscriber->report_ready();
}

void LiveTrace::look_in_flight() {
    const auto looked = host_.in_flight(in_flight_floor_ns_, [this](const InFlightCall& call) {
        const Process* process = host_.find_process(call.call.process());
        for (Subscriber* subscriber : subscribers_) subscriber->look_at(call, process);
    });
    if (!looked && !std::exchange(in_flight_fails_, true)) spdlog::warn("{}", looked.error().message);
    in_flight_fails_ = !looked;
    {
        const Lock lock(mutex_);
        for (auto& [subscriber, staged] : staged_) subscriber->forget(staged);
    }
    const ClockTriple clock = ClockTriple::now();
    for (Subscriber* subscriber : std::vector(subscribers_.begin(), subscribers_.end()))
        if (subscribers_.contains(subscriber) && subscriber->end_look(clock)) subscriber->report_ready();
}

}  // namespace ingero
