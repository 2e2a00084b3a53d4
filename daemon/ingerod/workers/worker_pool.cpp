#include "daemon/ingerod/workers/worker_pool.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/model/time.h"
#include "core/model/unique_fd.h"
#include "daemon/ingerod/limits/token_bucket.h"
#include "daemon/ingerod/workers/file_owner.h"
#include "daemon/ingerod/workers/turn_queue.h"
#include "daemon/ingerod/workers/worker_process.h"
#include "daemon/worker/protocol.h"

namespace ingero {

using nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t max_waiting = 64;
/// Of these by users who do not see all; each may have as many as are left to others.
constexpr size_t max_waiting_of_users = 48;
constexpr unsigned requests_per_worker = 1'000;
constexpr size_t read_bytes = 64 << 10;
// Workers that failed to start this often in a row are not started again at once.
constexpr unsigned patience = 3;
constexpr milliseconds first_pause{100};
constexpr milliseconds longest_pause{30'000};
constexpr milliseconds time_to_leave{1'000};
// What a worker does for a client that has hung up it may finish within that time: cheaper than another worker.
constexpr milliseconds time_for_nobody{500};
// A worker that has read one owner's files does so for that long before others' turns, each of which costs a new one.
constexpr milliseconds time_with_owner{100};
// So often at once, and then once in such a time: whoever maps files of two owners in turns takes no more than that.
constexpr uint64_t owner_changes = 256;
constexpr milliseconds owner_change_period{200};

uint64_t to_us(Clock::duration duration) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
    return us > 0 ? static_cast<uint64_t>(us) : 0;
}

std::string in_seconds(milliseconds duration) {
    std::array<char, 32> text{};
    snprintf(text.data(), text.size(), "%g s", static_cast<double>(duration.count()) / 1000);
    return text.data();
}

std::string describe(int status) {
    if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
    return "exit status " + std::to_string(WEXITSTATUS(status));
}

Error client_gone() {
    return {ErrorCode::bad_request, "the client has hung up", ""};
}

struct Job {
    WorkerUser user;
    std::string method;
    json params;
    UniqueFd fd;
    std::optional<FileOwner> owner;  ///< of the file, where that matters
    WorkerPool::Done done;
    Clock::time_point waits_until;
    std::function<void()> begins{};  ///< of a client that the worker answers: `fd` is its connection
    EventLoop::Source hang_up{};     ///< of that client
    uint64_t number = 0;

    bool has_client() const { return begins != nullptr; }
};

/// A worker with a job is busy; one that is leaving or killed gets none.
struct Worker {
    explicit Worker(WorkerProcess started) : process(std::move(started)) {}

    enum class State { serving, leaving, killed };

    WorkerProcess process;
    State state = State::serving;
    bool ready = false;  ///< it said that its sandbox is up
    RpcDecoder decoder{worker_rpc_limits};
    std::optional<Job> job;
    Clock::time_point began;  ///< the job, or the worker, whichever was later
    uint64_t job_id = 0;
    bool answers = false;  ///< it has begun to write to the job's client
    unsigned served = 0;
    std::optional<FileOwner> owner;  ///< of the files that it was passed
    Clock::time_point owned{};       ///< since when, or since it is ready
    std::string outgoing;
    size_t sent = 0;
    std::string violation;          ///< why it was killed, where it broke the protocol
    std::optional<Error> given_up;  ///< why it was killed, where a client gets it only once it has ended
    EventLoop::Source socket_source;
    EventLoop::Source exit_source;
    EventLoop::Source timer;

    bool is_free() const { return state == State::serving && !job; }
};

}  // namespace

struct WorkerPool::Impl {
    Impl(EventLoop& event_loop, WorkerOptions pool_options) : loop(event_loop), options(std::move(pool_options)) {
        options.count = std::max(1U, options.count);
    }
    ~Impl();

    bool has_place(const WorkerUser& user) const;
    void add(Job job);
    void dispatch();
    std::optional<WorkerUser> next_user(const Worker* free) const;
    bool suits(const Worker& worker, const Job& job) const;
    void end_turns();
    Worker* find_free();
    Result<Worker*> spawn();
    void on_failed_start(std::string why);
    Error paused_error() const;
    void expire_waiting();

    void start(Worker& worker, Job job);
    void flush(Worker& worker);
    void on_socket(Worker& worker, uint32_t events);
    bool receive_some(Worker& worker);
    bool handle(Worker& worker, RpcMessage message);
    void finish(Worker& worker, RpcResponse response);
    void on_hang_up(uint64_t job);
    void on_deadline(Worker& worker);
    void give_up(Worker& worker, Error why);
    void dismiss(Worker& worker);
    void kill(Worker& worker);
    void on_exit(Worker& worker);

    void settle(Done done, Result<json> result);

    EventLoop& loop;
    WorkerOptions options;
    std::vector<std::unique_ptr<Worker>> workers;
    TurnQueue<WorkerUser, Job> waiting;
    uint64_t last_id = 0;
    uint64_t last_job = 0;
    unsigned failed_starts = 0;  ///< in a row
    Clock::time_point paused_until{};
    std::string last_failure;
    // Answers are handed out from the loop, so that a caller may do anything in them, destroying the pool included.
    std::vector<std::pair<Done, Result<json>>> settled;
    EventLoop::Source settle_source;
    EventLoop::Source dispatch_source;
    TokenBucket changes{owner_changes, static_cast<uint64_t>(std::chrono::nanoseconds(owner_change_period).count())};
    EventLoop::Source change_timer;
    EventLoop::Source waiting_timer;
    EventLoop::Source turn_timer;
};

WorkerPool::Impl::~Impl() {
    for (auto& worker : workers) worker->process.kill();
    for (auto& worker : workers) worker->process.reap();
}

bool WorkerPool::Impl::has_place(const WorkerUser& user) const {
    if (waiting.size() >= max_waiting) return false;
    if (user.sees_all) return true;
    size_t of_users = 0;
    waiting.visit([&](const WorkerUser& other, const Job&) { of_users += !other.sees_all; });
    return of_users + waiting.size_of(user) + 2 <= max_waiting_of_users;
}

void WorkerPool::Impl::add(Job job) {
    if (!has_place(job.user)) {
        const bool all = waiting.size() >= max_waiting;
        return settle(std::move(job.done),
                      fail(ErrorCode::busy,
                           all ? "all workers are busy and 64 queries are waiting"
                               : "all workers are busy and " + std::to_string(waiting.size_of(job.user)) +
                                     " queries of user " + std::to_string(job.user.uid) + " are waiting",
                           "try again in a moment, or raise [workers] count"));
    }
    const WorkerUser user = job.user;
    waiting.push(user, std::move(job));
    dispatch();
}

/// Whether the worker may be passed the job's file.
bool WorkerPool::Impl::suits(const Worker& worker, const Job& job) const {
    return !worker.owner || !job.owner || worker.owner == job.owner;
}

/// Whose turn it is, of those that may have a worker now. `free`, if any, is the one that would be theirs.
std::optional<WorkerUser> WorkerPool::Impl::next_user(const Worker* free) const {
    if (free && free->owner && Clock::now() < free->owned + time_with_owner)
        if (const auto same = waiting.next([&](const WorkerUser& user) { return suits(*free, *waiting.front(user)); }))
            return same;
    const auto running = [this](const auto& match) {
        return static_cast<size_t>(std::count_if(workers.begin(), workers.end(),
                                                 [&](const auto& w) { return w->job && match(w->job->user); }));
    };
    const size_t of_users = running([](const WorkerUser& user) { return !user.sees_all; });
    const bool one_is_kept = options.count > 1;
    const auto sees_all = [](const WorkerUser& user) { return user.sees_all; };
    if (one_is_kept && running(sees_all) == 0)
        if (const auto user = waiting.next(sees_all)) return user;
    const auto may = [&](const WorkerUser& user) {
        return user.sees_all || !one_is_kept || of_users + 1 < options.count;
    };
    const size_t share = std::max<size_t>(1, options.count / 2);
    const auto within_share = [&](const WorkerUser& user) {
        return may(user) && running([&](const WorkerUser& other) { return other == user; }) < share;
    };
    if (const auto user = waiting.next(within_share)) return user;
    return waiting.next(may);
}

/// Gives waiting jobs to free workers, starting those that are missing.
void WorkerPool::Impl::dispatch() {
    while (!waiting.empty()) {
        Worker* worker = find_free();
        // Those being killed count until they are gone: one that cannot be killed must not multiply.
        if (!worker && workers.size() >= options.count) break;
        if (!worker && Clock::now() < paused_until) {
            if (!workers.empty()) break;
            for (Job& job : waiting.remove_if([](const Job&) { return true; }))
                settle(std::move(job.done), tl::unexpected(paused_error()));
            break;
        }
        const auto user = next_user(worker);
        if (!user) break;
        if (worker && !suits(*worker, *waiting.front(*user))) {
            if (!changes.take(monotonic_now_ns())) {
                change_timer = loop.add_timer(to_us(owner_change_period), [this] { dispatch(); });
                break;
            }
            kill(*worker);  // one that was taken over would not leave by itself
            continue;
        }
        Job job = *waiting.take(*user);
        if (!worker) {
            auto spawned = spawn();
            if (!spawned) {
                on_failed_start(spawned.error().message);
                settle(std::move(job.done), tl::unexpected(spawned.error()));
                continue;
            }
            worker = *spawned;
        }
        start(*worker, std::move(job));
    }
    expire_waiting();
    end_turns();
}

Worker* WorkerPool::Impl::find_free() {
    const auto found = std::find_if(workers.begin(), workers.end(), [](const auto& w) { return w->is_free(); });
    return found != workers.end() ? found->get() : nullptr;
}

Result<Worker*> WorkerPool::Impl::spawn() {
    auto process = WorkerProcess::start(options);
    if (!process) return tl::unexpected(process.error());
    auto& worker = *workers.emplace_back(std::make_unique<Worker>(std::move(*process)));
    worker.socket_source =
        loop.add_io(worker.process.socket(), EPOLLIN, [this, &worker](uint32_t events) { on_socket(worker, events); });
    // Not by sd_event_add_child(): that asks of the whole daemon that SIGCHLD be blocked.
    worker.exit_source = loop.add_io(worker.process.pidfd(), EPOLLIN, [this, &worker](uint32_t) { on_exit(worker); });
    return &worker;
}

void WorkerPool::Impl::on_failed_start(std::string why) {
    last_failure = std::move(why);
    if (++failed_starts < patience) return;
    const unsigned doublings = std::min(failed_starts - patience, 16U);
    paused_until = Clock::now() + std::min(first_pause * (1 << doublings), longest_pause);
}

Error WorkerPool::Impl::paused_error() const {
    return {ErrorCode::internal,
            "workers failed to start " + std::to_string(failed_starts) + " times in a row: " + last_failure,
            "the daemon's journal has the reason; it tries again with a query after a pause of at most " +
                in_seconds(longest_pause)};
}

/// Fails what has waited too long, and comes back when the next will have.
void WorkerPool::Impl::expire_waiting() {
    waiting_timer.reset();
    const auto now = Clock::now();
    for (Job& job : waiting.remove_if([&](const Job& one) { return one.waits_until <= now; }))
        settle(std::move(job.done),
               fail(ErrorCode::deadline, "no worker became free within " + in_seconds(options.deadline),
                    "try again later, or raise [workers] count"));
    auto next = Clock::time_point::max();
    waiting.visit([&](const WorkerUser&, const Job& job) { next = std::min(next, job.waits_until); });
    if (next == Clock::time_point::max()) return;
    waiting_timer = loop.add_timer(to_us(next - now), [this] { expire_waiting(); });
}

/// Ends the jobs that have had their turn while another user's wait, and comes back when the next will have.
void WorkerPool::Impl::end_turns() {
    turn_timer.reset();
    if (options.turn == milliseconds(0)) return;
    const auto now = Clock::now();
    auto next = Clock::time_point::max();
    for (auto& worker : workers) {
        if (!worker->job || !worker->ready || !waiting.any_of_another(worker->job->user)) continue;
        if (worker->began + options.turn > now)
            next = std::min(next, worker->began + options.turn);
        else
            give_up(*worker,
                    {ErrorCode::deadline,
                     "it took longer than " + in_seconds(options.turn) + " while queries of other users waited",
                     "it is tried again"});
    }
    if (next == Clock::time_point::max()) return;
    turn_timer = loop.add_timer(to_us(next - now), [this] { end_turns(); });
}

void WorkerPool::Impl::start(Worker& worker, Job job) {
    worker.job_id = ++last_id;
    worker.outgoing = encode(RpcRequest{worker.job_id, std::move(job.method), std::move(job.params)});
    worker.sent = 0;
    worker.answers = false;
    worker.job = std::move(job);
    worker.began = Clock::now();
    if (worker.job->owner && !worker.owner) {
        worker.owner = worker.job->owner;
        worker.owned = worker.began;
    }
    worker.timer = loop.add_timer(to_us(options.deadline), [this, &worker] { on_deadline(worker); });
    flush(worker);
}

void WorkerPool::Impl::flush(Worker& worker) {
    while (worker.sent < worker.outgoing.size()) {
        const std::string_view rest = std::string_view(worker.outgoing).substr(worker.sent);
        const ssize_t n = worker.process.send(rest, worker.sent == 0 && worker.job ? worker.job->fd.get() : -1);
        // A dead peer is on_exit's matter; any other failure leaves a request half sent.
        if (n < 0 && n != -EPIPE && n != -ECONNRESET) {
            worker.violation = errno_message("the request could not be sent to it", static_cast<int>(-n));
            return kill(worker);
        }
        if (n <= 0) break;
        worker.sent += static_cast<size_t>(n);
        if (worker.job && !worker.job->has_client()) worker.job->fd.reset();
    }
    const bool more = worker.sent < worker.outgoing.size();
    if (!more) worker.outgoing.clear(), worker.sent = 0;
    loop.set_io_events(worker.socket_source, more ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void WorkerPool::Impl::on_socket(Worker& worker, uint32_t events) {
    if (events & EPOLLOUT) flush(worker);
    if (worker.state != Worker::State::serving || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    // A worker that closes its end but lives is of no use; one that died says why through its pidfd.
    if (!receive_some(worker) && worker.state == Worker::State::serving) kill(worker);
}

/// One read, so that a long answer leaves the loop its turns. False at the end of the stream or of the protocol.
bool WorkerPool::Impl::receive_some(Worker& worker) {
    std::array<std::byte, read_bytes> buffer;
    const ssize_t n = worker.process.receive(buffer);
    if (n == -EAGAIN || n == -EINTR) return true;
    if (n <= 0) return false;
    worker.decoder.feed({buffer.data(), static_cast<size_t>(n)});
    for (;;) {
        auto message = worker.decoder.next();
        if (!message) {
            worker.violation = "it sent " + message.error().message;
            return false;
        }
        if (!*message) return true;
        if (!handle(worker, std::move(**message))) return false;
    }
}

bool WorkerPool::Impl::handle(Worker& worker, RpcMessage message) {
    if (const auto* notification = std::get_if<RpcNotification>(&message);
        notification && notification->method == worker_ready && !worker.ready) {
        worker.ready = true;
        worker.began = worker.owned = Clock::now();
        failed_starts = 0;
        paused_until = {};
        end_turns();
        return true;
    }
    if (const auto* notification = std::get_if<RpcNotification>(&message);
        notification && notification->method == worker_answers && worker.job && worker.job->has_client() &&
        worker.outgoing.empty()) {
        worker.job->begins();
        // That the client reads it takes a time of its own, which begins once.
        if (worker.state == Worker::State::serving && !std::exchange(worker.answers, true))
            worker.timer = loop.add_timer(to_us(options.deadline), [this, &worker] { on_deadline(worker); });
        return true;
    }
    auto* response = std::get_if<RpcResponse>(&message);
    if (!response || !worker.job || response->id != worker.job_id || !worker.outgoing.empty()) {
        worker.violation = "it sent an unexpected message";
        return false;
    }
    finish(worker, std::move(*response));
    return true;
}

void WorkerPool::Impl::finish(Worker& worker, RpcResponse response) {
    worker.timer.reset();
    ++worker.served;
    // A worker that found no store, or lost it, will not find one later: its sandbox lets it open nothing.
    const auto is_of_the_worker = [](ErrorCode code) {
        return code == ErrorCode::not_found || code == ErrorCode::internal;
    };
    bool spent = response.error && is_of_the_worker(response.error->code);
    // A client has its error already; the result names it.
    if (const json* code = worker.job->has_client() && response.result.is_string() ? &response.result : nullptr)
        spent = is_of_the_worker(error_code_from_string(code->get_ref<const std::string&>()));
    Done done = std::move(worker.job->done);
    worker.job.reset();
    if (response.error)
        settle(std::move(done), tl::unexpected(std::move(*response.error)));
    else
        settle(std::move(done), std::move(response.result));
    if (worker.state != Worker::State::serving) return;
    if (spent || worker.served >= requests_per_worker || worker.process.anonymous_bytes() > options.memory_bytes / 2)
        dismiss(worker);
    else if (!options.one_owner_each)
        dispatch();
    else  // whoever has the answer may have more of the same owner's
        dispatch_source = loop.defer([this] {
            dispatch_source.reset();
            dispatch();
        });
}

/// One that waits is dropped at once, and one that a worker is at soon, unless it is done by then.
void WorkerPool::Impl::on_hang_up(uint64_t job) {
    for (Job& one : waiting.remove_if([&](const Job& other) { return other.number == job; }))
        settle(std::move(one.done), tl::unexpected(client_gone()));
    for (auto& worker : workers) {
        if (!worker->job || worker->job->number != job) continue;
        worker->job->hang_up.reset();
        worker->timer =
            loop.add_timer(to_us(time_for_nobody), [this, &worker = *worker] { give_up(worker, client_gone()); });
    }
}

void WorkerPool::Impl::on_deadline(Worker& worker) {
    give_up(worker,
            {ErrorCode::deadline, "the query took longer than " + in_seconds(options.deadline) + " and was stopped",
             "ask for a shorter window or one pid, or raise [workers] deadline"});
}

void WorkerPool::Impl::give_up(Worker& worker, Error why) {
    if (worker.job->has_client()) {
        // Until it has ended it may begin to write to the client.
        worker.given_up = std::move(why);
        return kill(worker);
    }
    settle(std::move(worker.job->done), tl::unexpected(std::move(why)));
    worker.job.reset();
    kill(worker);
}

void WorkerPool::Impl::dismiss(Worker& worker) {
    worker.state = Worker::State::leaving;
    worker.socket_source.reset();
    worker.process.hang_up();
    worker.timer = loop.add_timer(to_us(time_to_leave), [this, &worker] { kill(worker); });
}

void WorkerPool::Impl::kill(Worker& worker) {
    worker.state = Worker::State::killed;
    worker.socket_source.reset();
    worker.timer.reset();
    worker.process.kill();
}

void WorkerPool::Impl::on_exit(Worker& worker) {
    const bool by_itself = worker.state == Worker::State::serving;
    worker.state = Worker::State::killed;
    // Its last answer may have come just before its end.
    while (worker.job && (by_itself || worker.job->has_client()) && receive_some(worker)) {
    }
    const std::string how = describe(worker.process.reap());
    const bool is_its_fault = !worker.given_up || worker.given_up->code != client_gone().code;
    if (!worker.ready && is_its_fault) on_failed_start("it ended (" + how + ") before it was ready");
    if (worker.job) {
        std::string message = worker.ready ? "the worker that ran this query ended (" + how + ")"
                                           : "the worker for this query did not start (" + how + ")";
        if (!worker.violation.empty()) message = "the worker that ran this query was stopped: " + worker.violation;
        const char* hint = !worker.ready ? "the daemon's journal has the reason"
                           : options.store_is_checked
                               ? "try again; if it happens again, stop ingerod and check the store with 'ingeroctl db "
                                 "verify': if that finds no damage, please report it"
                               : "try again; if it happens again with the same query, please report it";
        settle(std::move(worker.job->done),
               tl::unexpected(worker.given_up.value_or(Error{ErrorCode::internal, std::move(message), hint})));
    }
    workers.erase(std::find_if(workers.begin(), workers.end(), [&](const auto& w) { return w.get() == &worker; }));
    dispatch();
}

void WorkerPool::Impl::settle(Done done, Result<json> result) {
    settled.emplace_back(std::move(done), std::move(result));
    if (settle_source.active()) return;
    settle_source = loop.defer([this] {
        // Nothing of this is touched once the first caller has its answer: it may have destroyed the pool.
        auto answers = std::exchange(settled, {});
        settle_source.reset();
        for (auto& [answered, answer] : answers) answered(std::move(answer));
    });
}

WorkerPool::WorkerPool(EventLoop& loop, WorkerOptions options)
    : impl_(std::make_unique<Impl>(loop, std::move(options))) {}

WorkerPool::~WorkerPool() = default;

void WorkerPool::request(const WorkerUser& user, std::string method, json params, std::optional<int> fd, Done done) {
    Job job{
        user, std::move(method), std::move(params), {}, {}, std::move(done), Clock::now() + impl_->options.deadline};
    if (fd) {
        job.fd.reset(fcntl(*fd, F_DUPFD_CLOEXEC, 0));
        if (!job.fd) {
            auto error = fail(ErrorCode::internal, errno_message("the file cannot be passed to a worker", errno));
            return impl_->settle(std::move(job.done), std::move(error));
        }
        if (impl_->options.one_owner_each) {
            const auto owner = owner_of(*fd);
            if (!owner) return impl_->settle(std::move(job.done), tl::unexpected(owner.error()));
            job.owner = *owner;
        }
    }
    impl_->add(std::move(job));
}

void WorkerPool::answer(const WorkerUser& user, std::string method, json params, HandedOver client) {
    Job job{user,
            std::move(method),
            std::move(params),
            UniqueFd(fcntl(client.connection(), F_DUPFD_CLOEXEC, 0)),
            {},
            {},
            Clock::now() + impl_->options.deadline};
    job.done = [done = std::move(client.done)](Result<json> answered) {
        if (answered) return done({});
        done(tl::unexpected(std::move(answered.error())));
    };
    if (!job.fd) {
        auto error = fail(ErrorCode::internal, errno_message("the connection cannot be passed to a worker", errno));
        return impl_->settle(std::move(job.done), std::move(error));
    }
    job.params["answer_to"] = client.request;
    job.begins = std::move(client.begins);
    job.number = ++impl_->last_job;
    job.hang_up = impl_->loop.add_io(job.fd.get(), 0, [pool = impl_.get(), number = job.number](uint32_t events) {
        if (events & (EPOLLHUP | EPOLLERR)) pool->on_hang_up(number);
    });
    impl_->add(std::move(job));
}

void WorkerPool::reconfigure(unsigned count, uint64_t memory_bytes, milliseconds deadline) {
    impl_->options.count = std::max(1U, count);
    impl_->options.memory_bytes = memory_bytes;
    impl_->options.deadline = deadline;
    for (auto& worker : impl_->workers) {
        if (worker->is_free())
            impl_->dismiss(*worker);
        else
            worker->served = requests_per_worker;
    }
}

std::vector<int> WorkerPool::pids() const {
    std::vector<int> result;
    for (const auto& worker : impl_->workers)
        if (worker->state == Worker::State::serving) result.push_back(worker->process.pid());
    return result;
}

}  // namespace ingero
