// The daemon's bus service on a loop thread of its own, with a backend that does as the test tells it.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/model/unique_fd.h"
#include "core/render/render.h"
#include "daemon/ingerod/bus/bus_service.h"
#include "daemon/ingerod/loop/event_loop.h"

namespace ingero::test {

/// Loop thread only.
class FakeBusBackend : public BusBackend {
  public:
    struct Query {
        Caller caller;
        std::string method;
        nlohmann::json params;
        std::function<void(Result<nlohmann::json>)> done;
    };

    std::string node() const override { return "test-node"; }
    nlohmann::json status(const Caller&) override {
        nlohmann::json answer = answer_head("status", {.node = node(), .missing_probes = {}, .comms = {}}, {1, 2}, {});
        answer["state"] = current.state;
        answer["events"] = {{"recorded", current.events_recorded}, {"lost", current.events_lost}};
        answer["overhead"] = {{"measured_permille", nullptr}};
        return answer;
    }
    nlohmann::json probes(const Caller&) override { return nlohmann::json::object(); }
    Result<std::unique_ptr<LiveStream>> trace(const Caller&, const nlohmann::json&, std::function<void()>) override {
        return fail(ErrorCode::busy, "not by bus");
    }
    Result<std::unique_ptr<LiveStream>> monitor(const Caller&, std::function<void()>) override {
        return fail(ErrorCode::busy, "not by bus");
    }
    Result<std::unique_ptr<FootprintRecording>> footprint(const Caller&, uint32_t) override {
        return fail(ErrorCode::busy, "not by bus");
    }
    nlohmann::json processes(const Caller& caller) override {
        nlohmann::json list = nlohmann::json::array();
        for (const PublicProcess& process : traced)
            if (caller.sees_all || process.uid == caller.uid)
                list.push_back({{"pid", process.key.pid},
                                {"comm", process.comm},
                                {"rank", process.key.pid % 8},
                                {"devices", nullptr},
                                {"calls_per_s", 12.5}});
        return {{"schema", "ingero/processes/1"}, {"processes", list}};
    }
    void query(const Caller& caller, const std::string& method, const nlohmann::json& params,
               std::function<void(Result<nlohmann::json>)> done) override {
        if (hold) {
            held.push_back({caller, method, params, std::move(done)});
            return;
        }
        if (failure) return done(tl::unexpected(*failure));
        nlohmann::json answer = answer_head(method, {.node = node(), .missing_probes = {}, .comms = {}}, {1, 2}, {});
        answer["echo"] = {{"uid", caller.uid}, {"sees_all", caller.sees_all}, {"method", method}, {"params", params}};
        done(std::move(answer));
    }
    void hand_over(const Caller&, const std::string&, const nlohmann::json&, HandedOver client) override {
        client.done(fail(ErrorCode::busy, "not by bus"));
    }
    void check(const Caller&, bool, std::function<void(Result<nlohmann::json>)> done) override {
        done(fail(ErrorCode::busy, "not by bus"));
    }
    void snapshot(UniqueFd, std::function<bool()>, std::function<void(Result<nlohmann::json>)> done) override {
        done(fail(ErrorCode::busy, "not by bus"));
    }
    Result<nlohmann::json> reload() override {
        if (failure) return tl::unexpected(*failure);
        ++reloads;
        return nlohmann::json::object();
    }
    PublicFigures figures() const override { return current; }
    std::vector<PublicProcess> public_processes() const override { return traced; }
    std::vector<ProbeSetState> probe_sets() const override { return sets; }
    std::vector<Incident> open_incidents() const override { return open; }
    Result<void> set_probe(const std::string& set, bool on) override {
        for (ProbeSetState& probe : sets)
            if (probe.set == set) {
                probe.attached = on;
                return {};
            }
        return fail(ErrorCode::bad_request, "no such set: " + set);
    }

    PublicFigures current{"1.2.3", "tracing", "test-node", 5'000'000, 7, 0, 4'096, 4.5};
    std::vector<PublicProcess> traced;
    std::vector<ProbeSetState> sets;
    std::vector<Incident> open;
    std::optional<Error> failure;  ///< of queries and reload
    bool hold = false;             ///< queries stay in `held`
    std::vector<Query> held;
    int reloads = 0;
};

inline Incident make_incident(const std::string& id, uint64_t lost_ns = 1'000'000) {
    Incident incident;
    incident.id = id;
    incident.kind = "cpu-contention";
    incident.severity = Severity::high;
    incident.verdict = Verdict::proven;
    incident.summary = "lost 1 ms";
    incident.lost_ns = lost_ns;
    incident.explained_fraction = 0.5;
    incident.opened_realtime_ns = 1'700'000'000'000'000'000;
    incident.culprits = {{"hog", 42, 900'000}};
    return incident;
}

class BusDaemon {
  public:
    explicit BusDaemon(const BusOptions& options = {.retry = std::chrono::milliseconds(20)},
                       const std::function<void(FakeBusBackend&)>& prepare = {}) {
        if (prepare) prepare(backend_);
        std::promise<void> ready;
        thread_ = std::thread([this, &ready, &options] { run(options, ready); });
        ready.get_future().get();
    }
    ~BusDaemon() {
        on_loop([this] { loop_->exit(0); });
        thread_.join();
    }

    /// Runs on the loop thread and waits for it.
    template <class F>
    std::invoke_result_t<F&> on_loop(F&& work) {
        const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<F&>()>>(std::forward<F>(work));
        auto result = task->get_future();
        {
            const std::lock_guard lock(mutex_);
            tasks_.emplace_back([task] { (*task)(); });
        }
        const uint64_t one = 1;
        if (write(wake_.get(), &one, sizeof(one)) != sizeof(one)) std::abort();
        return result.get();
    }
    /// Asks again and again on the loop thread; each time is a turn of the loop.
    template <class F>
    [[nodiscard]] bool wait_until(F&& condition, std::chrono::seconds patience = std::chrono::seconds(30)) {
        const auto give_up = std::chrono::steady_clock::now() + patience;
        while (std::chrono::steady_clock::now() < give_up)
            if (on_loop(condition)) return true;
        return false;
    }
    [[nodiscard]] bool wait_connected() {
        return wait_until([this] { return service().connected(); });
    }
    void tell(IncidentChange::What what, const Incident& incident) {
        on_loop([&] { service().emit({what, incident}); });
    }

    FakeBusBackend& backend() { return backend_; }
    BusService& service() { return *service_; }
    EventLoop& loop() { return *loop_; }

  private:
    void run(const BusOptions& options, std::promise<void>& ready) {
        EventLoop loop;
        loop_ = &loop;
        const auto source = loop.add_io(wake_.get(), EPOLLIN, [this](uint32_t) { run_tasks(); });
        service_ = std::make_unique<BusService>(loop, backend_, options);
        ready.set_value();
        loop.run();
        service_.reset();
    }

    void run_tasks() {
        uint64_t count = 0;
        if (read(wake_.get(), &count, sizeof(count)) != sizeof(count)) return;
        std::vector<std::function<void()>> tasks;
        {
            const std::lock_guard lock(mutex_);
            tasks.swap(tasks_);
        }
        for (const auto& task : tasks) task();
    }

    FakeBusBackend backend_;
    UniqueFd wake_{eventfd(0, EFD_CLOEXEC)};
    std::mutex mutex_;
    std::vector<std::function<void()>> tasks_;
    EventLoop* loop_ = nullptr;
    std::unique_ptr<BusService> service_;
    std::thread thread_;
};

}  // namespace ingero::test
