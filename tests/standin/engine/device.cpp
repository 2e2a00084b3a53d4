#include "device.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "clock.h"
#include "handles.h"
#include "options.h"
#include "results.h"
#include "waiting_word.h"

namespace ingero::standin {

namespace {

void raise_to(std::atomic<uint64_t>& latest, uint64_t value) {
    uint64_t seen = latest.load(std::memory_order_relaxed);
    while (seen < value && !latest.compare_exchange_weak(seen, value, std::memory_order_acq_rel)) {
    }
}

void close_timer(void* stored) {
    close(int(reinterpret_cast<intptr_t>(stored)) - 1);
}

// A timer a thread, kept: making one would be a second system call in every wait.
int timer_of_thread() {
    static const pthread_key_t key = [] {
        pthread_key_t made;
        pthread_key_create(&made, close_timer);
        return made;
    }();
    if (void* stored = pthread_getspecific(key)) return int(reinterpret_cast<intptr_t>(stored)) - 1;
    const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (timer >= 0) pthread_setspecific(key, reinterpret_cast<void*>(intptr_t(timer) + 1));
    return timer;
}

// The real library polls a descriptor of the device here; ours is a timer's.
void block_until(uint64_t target_ns) {
    const int timer = timer_of_thread();
    itimerspec when{};
    when.it_value = to_timespec(target_ns);
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, nullptr);
    pollfd wanted{timer, POLLIN, 0};
    while (now_ns() < target_ns) {
        if (poll(&wanted, 1, -1) < 0 && errno != EINTR) return;
    }
}

// For whom the options ask to say when this process waits.
class SaidWait {
  public:
    SaidWait() {
        if (word() != nullptr) word()->turn();
    }
    ~SaidWait() {
        if (word() != nullptr) word()->turn();
    }
    SaidWait(const SaidWait&) = delete;
    SaidWait& operator=(const SaidWait&) = delete;

  private:
    // Never destroyed, as the options.
    static WaitingWord* word() {
        static WaitingWord* const made = options().waits.empty() ? nullptr : make();
        return made;
    }
    static WaitingWord* make() {
        WaitingWord* const made = std::make_unique<WaitingWord>(options().waits.c_str()).release();
        if (!made->exists()) reject("not a file of four bytes", options().waits);
        return made;
    }
};

// What a rule said of the call that puts this on a stream.
int take_fault() {
    return std::exchange(thread_state.pending_fault, 0);
}

}  // namespace

void wait_until(uint64_t target_ns, Wait wait, Note& note) {
    const uint64_t start_ns = now_ns();
    if (start_ns >= target_ns) return;
    const SaidWait said;
    note.flags |= GROUND_TRUTH_WAITED_FOR_DEVICE;
    switch (wait) {
        case Wait::spin:
            spin_until(target_ns);
            break;
        case Wait::yield:
            while (now_ns() < target_ns) sched_yield();
            break;
        case Wait::block:
            block_until(target_ns);
            note.flags |= GROUND_TRUTH_SLEPT;
            break;
    }
    note.waited_ns += now_ns() - start_ns;
}

uint64_t ExternalWork::begin() {
    const std::lock_guard guard(lock_);
    open_.insert(++begun_);
    return begun_;
}

void ExternalWork::end(uint64_t number) {
    const std::lock_guard guard(lock_);
    open_.erase(number);
    changed_.notify_all();
}

void ExternalWork::wait(Note& note) {
    std::unique_lock guard(lock_);
    const uint64_t last = begun_;
    const auto done = [&] { return open_.empty() || *open_.begin() > last; };
    if (done()) return;
    const uint64_t start_ns = now_ns();
    changed_.wait(guard, done);
    note.flags |= GROUND_TRUTH_WAITED_FOR_DEVICE | GROUND_TRUTH_SLEPT;
    note.waited_ns += now_ns() - start_ns;
}

uint64_t copy_time_ns(uint64_t bytes) {
    const Options& set = options();
    return set.copy_ns + uint64_t(double(bytes) / set.copy_gbps);
}

Stream::Stream(int device, bool blocking, bool legacy)
    : device_(device), blocking_(blocking), legacy_(legacy), finish_ns_(options().queue) {}

// Finished entries are looked for only when the ring is full: most launches never look.
bool Stream::has_room(uint64_t now) {
    if (entries_ < finish_ns_.size()) return true;
    while (entries_ > 0 && finish_ns_[oldest_] <= now) {
        oldest_ = oldest_ + 1 == finish_ns_.size() ? 0 : oldest_ + 1;
        --entries_;
    }
    return entries_ < finish_ns_.size();
}

uint64_t Stream::earliest_start(uint64_t now) const {
    Devices& devices = Devices::instance();
    uint64_t start = std::max(now, busy_until());
    if (legacy_)
        start = std::max(start, devices.latest_blocking(device_).load(std::memory_order_acquire));
    else if (blocking_)
        start = std::max(start, devices.legacy_stream(device_).busy_until());
    return start;
}

uint64_t Stream::enqueue(uint64_t duration_ns, Note& note) {
    for (;;) {
        uint64_t free_at;
        {
            const std::lock_guard guard(lock_);
            if (capturing_) {
                ++captured_.nodes;
                captured_.duration_ns += duration_ns;
                if (const int fault = take_fault()) captured_.fault = fault;
                note.flags |= GROUND_TRUTH_CAPTURED;
                return 0;
            }
            const uint64_t now = now_ns();
            if (has_room(now)) {
                const uint64_t finish = earliest_start(now) + duration_ns;
                finish_ns_[(oldest_ + entries_) % finish_ns_.size()] = finish;
                ++entries_;
                busy_until_ns_.store(finish, std::memory_order_release);
                Devices& devices = Devices::instance();
                if (const int fault = take_fault()) [[unlikely]]
                    devices.set_fault(device_, fault, finish);
                raise_to(devices.latest(device_), finish);
                if (blocking_ || legacy_) raise_to(devices.latest_blocking(device_), finish);
                return finish;
            }
            free_at = finish_ns_[oldest_];
        }
        // Not under the lock: others may synchronise with the stream meanwhile.
        note.flags |= GROUND_TRUTH_QUEUE_FULL;
        wait_until(free_at, Wait::spin, note);
    }
}

void Stream::delay_until(uint64_t target_ns) {
    const std::lock_guard guard(lock_);
    if (!capturing_ && target_ns > busy_until()) busy_until_ns_.store(target_ns, std::memory_order_release);
}

uint64_t Stream::done_at() const {
    if (!legacy_) return busy_until();
    return std::max(busy_until(), Devices::instance().latest_blocking(device_).load(std::memory_order_acquire));
}

bool Stream::begin_capture() {
    const std::lock_guard guard(lock_);
    if (capturing_ || legacy_) return false;
    captured_ = {};
    return capturing_ = true;
}

bool Stream::end_capture(Graph& graph) {
    const std::lock_guard guard(lock_);
    if (!capturing_) return false;
    graph = captured_;
    capturing_ = false;
    return true;
}

bool Stream::capturing() {
    const std::lock_guard guard(lock_);
    return capturing_;
}

Devices::Devices() {
    for (uint32_t i = 0; i < options().devices; ++i) {
        legacy_streams_.push_back(std::make_unique<Stream>(int(i), true, true));
    }
}

Devices& Devices::instance() {
    // Never destroyed: programs call into CUDA from their exit handlers.
    static Devices& made = *std::make_unique<Devices>().release();
    return made;
}

Stream* Devices::find_stream(uint64_t handle, bool per_thread) {
    const bool default_of_thread = handle == 2 || (handle == 0 && per_thread);
    if (default_of_thread) {
        uint32_t& index = thread_state.default_stream;
        if (index == 0) index = streams_.add(std::make_unique<Stream>(thread_state.device, true, false));
        return streams_.find(index);
    }
    if (handle <= 1) return legacy_streams_[size_t(thread_state.device)].get();
    const uint32_t index = handle_index(HandleKind::stream, handle);
    return index == 0 ? nullptr : streams_.find(index);
}

uint64_t Devices::create_stream(bool blocking) {
    const uint32_t index = streams_.add(std::make_unique<Stream>(thread_state.device, blocking, false));
    return index == 0 ? 0 : make_handle(HandleKind::stream, index);
}

bool Devices::destroy_stream(uint64_t handle) {
    return streams_.remove(handle_index(HandleKind::stream, handle));
}

uint64_t Devices::create_event(bool blocking_sync) {
    auto event = std::make_unique<Event>();
    event->blocking_sync = blocking_sync;
    const uint32_t index = events_.add(std::move(event));
    return index == 0 ? 0 : make_handle(HandleKind::event, index);
}

Event* Devices::find_event(uint64_t handle) {
    return events_.find(handle_index(HandleKind::event, handle));
}

bool Devices::destroy_event(uint64_t handle) {
    return events_.remove(handle_index(HandleKind::event, handle));
}

uint64_t Devices::function(std::string_view name) {
    const std::lock_guard guard(names_lock_);
    const auto known = std::find_if(names_.begin(), names_.end(), [name](const auto& n) { return n.first == name; });
    if (known != names_.end()) return known->second;
    auto kernel = std::make_unique<Kernel>();
    kernel->name = name;
    kernel->duration_ns = options().kernel_ns;
    for (const KernelTime& time : options().kernels) {
        if (time.name == name) kernel->duration_ns = time.duration_ns;
    }
    const uint32_t index = kernels_.add(std::move(kernel));
    const uint64_t handle = index == 0 ? 0 : make_handle(HandleKind::function, index);
    names_.emplace_back(name, handle);
    return handle;
}

Kernel* Devices::find_function(uint64_t handle) {
    return kernels_.find(handle_index(HandleKind::function, handle));
}

uint64_t Devices::add_graph(const Graph& graph, bool executable) {
    auto& table = executable ? graph_execs_ : graphs_;
    const uint32_t index = table.add(std::make_unique<Graph>(graph));
    if (index == 0) return 0;
    return make_handle(executable ? HandleKind::graph_exec : HandleKind::graph, index);
}

Graph* Devices::find_graph(uint64_t handle, bool executable) {
    if (executable) return graph_execs_.find(handle_index(HandleKind::graph_exec, handle));
    return graphs_.find(handle_index(HandleKind::graph, handle));
}

bool Devices::destroy_graph(uint64_t handle, bool executable) {
    if (executable) return graph_execs_.remove(handle_index(HandleKind::graph_exec, handle));
    return graphs_.remove(handle_index(HandleKind::graph, handle));
}

int Devices::launch(Kernel& kernel, Stream& stream, Note& note) {
    if (options().lazy_ns != 0 && !kernel.loaded.exchange(true)) {
        // Loading works on the host's CPU, so it spins.
        spin_until(now_ns() + options().lazy_ns);
        note.flags |= GROUND_TRUTH_LAZY_LOAD;
    }
    stream.enqueue(kernel.duration_ns, note);
    return success;
}

Wait Devices::wait_mode() const {
    switch (schedule(thread_state.device)) {
        case Schedule::spin:
            return Wait::spin;
        case Schedule::yield:
            return Wait::yield;
        case Schedule::block:
            return Wait::block;
        case Schedule::automatic:
            break;
    }
    return options().sync;
}

void Devices::set_schedule(int device, Schedule schedule) {
    schedules_[size_t(device)].store(schedule, std::memory_order_relaxed);
}

void Devices::synchronize(Note& note) {
    external_[size_t(thread_state.device)].wait(note);
    wait_until(ends_[size_t(thread_state.device)].all.load(std::memory_order_acquire), wait_mode(), note);
}

void Devices::set_fault(int device, int error, uint64_t at_ns) {
    Fault& fault = faults_[size_t(device)];
    int none = 0;
    if (fault.error.compare_exchange_strong(none, error)) fault.at_ns.store(at_ns, std::memory_order_release);
}

void Devices::clear_fault(int device) {
    Fault& fault = faults_[size_t(device)];
    fault.at_ns.store(never);
    fault.error.store(0);
}

}  // namespace ingero::standin
