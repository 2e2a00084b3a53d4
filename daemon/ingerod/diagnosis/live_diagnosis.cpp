#include "daemon/ingerod/diagnosis/live_diagnosis.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "core/model/unique_fd.h"

namespace ingero {

namespace {

constexpr std::chrono::seconds pass_period{1};
/// After its exit, a process can still be in the window.
constexpr uint64_t remembered_ns = 60'000'000'000;

struct Pass {
    std::vector<Finding> findings;
    ClockTriple at;
};

}  // namespace

struct LiveDiagnosis::Impl {
    Impl(EventLoop& loop, std::string boot_id, OnPass callback)
        : window(std::move(boot_id)), on_pass(std::move(callback)), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        source = loop.add_io(wake.get(), EPOLLIN, [this](uint32_t) { deliver(); });
        thread = std::thread([this] { run(); });
        pthread_setname_np(thread.native_handle(), "ingerod-diag");
    }

    ~Impl() {
        {
            const std::lock_guard lock(mutex);
            stopping = true;
        }
        condition.notify_all();
        thread.join();
    }

    // Its own thread: asleep for good while there is nothing to judge, to wait for or to let go.
    void run() {
        std::unique_lock lock(mutex);
        for (;;) {
            condition.wait(lock, [this] { return stopping || awake || !window.empty(); });
            if (condition.wait_for(lock, pass_period, [this] { return stopping; })) return;
            const ClockTriple now = ClockTriple::now();
            window.trim(now.monotonic_ns);
            forget_exited(now.monotonic_ns);
            if (!awake && !window.has_new()) continue;
            std::vector<Process> known;
            for (const auto& [key, process] : processes) known.push_back(process);
            lock.unlock();
            Pass pass{window.pass(now, known), now};
            lock.lock();
            // A loop that is behind gets the latest, with what the one before had newly lost.
            if (finished) carry(*finished, pass);
            finished = std::move(pass);
            const uint64_t one = 1;
            [[maybe_unused]] const ssize_t written = write(wake.get(), &one, sizeof(one));
        }
    }

    void forget_exited(uint64_t now_ns) {
        std::erase_if(processes, [&](const auto& one) {
            return one.second.exited_ns != 0 && one.second.exited_ns + remembered_ns < now_ns;
        });
    }

    static void carry(const Pass& earlier, Pass& later) {
        for (Finding& finding : later.findings)
            for (const Finding& before : earlier.findings)
                if (before.id == finding.id) finding.newly_lost_ns += before.newly_lost_ns;
    }

    void deliver() {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = read(wake.get(), &count, sizeof(count));
        std::optional<Pass> pass;
        {
            const std::lock_guard lock(mutex);
            pass.swap(finished);
        }
        if (pass) on_pass(pass->findings, pass->at);
    }

    LiveWindow window;
    OnPass on_pass;
    UniqueFd wake;
    EventLoop::Source source;
    std::mutex mutex;
    std::condition_variable condition;
    // Below: guarded by mutex.
    bool stopping = false;
    bool awake = false;
    std::map<ProcessKey, Process> processes;
    std::optional<Pass> finished;
    std::thread thread;
};

LiveDiagnosis::LiveDiagnosis(EventLoop& loop, std::string boot_id, OnPass on_pass)
    : impl_(std::make_unique<Impl>(loop, std::move(boot_id), std::move(on_pass))) {}

LiveDiagnosis::~LiveDiagnosis() = default;

void LiveDiagnosis::add(std::vector<Event> events, uint64_t lost) {
    if (events.empty()) return;
    {
        // Under the lock, so that the thread cannot miss it between looking and falling asleep.
        const std::lock_guard lock(impl_->mutex);
        impl_->window.add(std::move(events), lost);
    }
    impl_->condition.notify_one();
}

void LiveDiagnosis::put_process(const Process& process) {
    const std::lock_guard lock(impl_->mutex);
    impl_->forget_exited(monotonic_now_ns());
    impl_->processes[process.key] = process;
}

void LiveDiagnosis::keep_awake(bool awake) {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->awake = awake;
    }
    impl_->condition.notify_one();
}

}  // namespace ingero
