#include "daemon/ingerod/check/check_runner.h"

#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

namespace ingero {

using nlohmann::json;

namespace {

/// Below what ingeroctl waits for an answer.
constexpr uint64_t deadline_us = 45'000'000;
constexpr size_t max_output_bytes = 1 << 20;
constexpr int exit_ready = 0;
constexpr int exit_not_ready = 4;

constexpr const char* see_why = "journalctl -u ingerod may say why; `ingeroctl check --local` does not need the daemon";

}  // namespace

CheckRunner::CheckRunner(EventLoop& loop, std::vector<std::string> command)
    : loop_(loop), command_(std::move(command)) {}

void CheckRunner::run(bool probe, std::chrono::milliseconds max_age, Done done) {
    if (!probe && latest_ && std::chrono::steady_clock::now() - latest_at_ < max_age) return done(*latest_);
    waiting_.push_back({probe, std::move(done)});
    if (!child_) start_next();
}

void CheckRunner::start_next() {
    if (waiting_.empty()) return;
    running_probe_ = waiting_.front().probe;
    std::vector<std::string> command = command_;
    if (running_probe_) command.emplace_back("--probe");
    output_.clear();
    auto child = ChildProcess::start(std::move(command), {.program = {}, .keep = {"JOURNAL_STREAM"}});
    if (!child) {
        // Not at once: whoever asked is still within run().
        deadline_ = loop_.defer([this, error = child.error()] { finish(tl::unexpected(error)); });
        return;
    }
    child_.emplace(std::move(*child));
    io_ = loop_.add_io(child_->output(), EPOLLIN, [this](uint32_t) { on_output(); });
    exit_ = loop_.add_io(child_->pidfd(), EPOLLIN, [this](uint32_t) {
        child_->read_available(output_);
        finish(read_answer(child_->wait()));
    });
    deadline_ = loop_.add_timer(deadline_us, [this] {
        finish(fail(ErrorCode::deadline, "the check did not end within 45 s and was stopped", see_why));
    });
}

void CheckRunner::on_output() {
    if (!child_->read_available(output_)) io_.reset();  // its exit follows
    if (output_.size() > max_output_bytes)
        finish(fail(ErrorCode::internal, "the check printed more than 1 MiB", see_why));
}

Result<json> CheckRunner::read_answer(int status) const {
    const bool ended_well =
        WIFEXITED(status) && (WEXITSTATUS(status) == exit_ready || WEXITSTATUS(status) == exit_not_ready);
    if (!ended_well) return fail(ErrorCode::internal, "the check " + describe_wait_status(status), see_why);
    json answer = json::parse(output_, nullptr, false);
    if (!answer.is_object() || !answer.contains("checks") || !answer["checks"].is_array())
        return fail(ErrorCode::internal, "the check printed no answer", see_why);
    return answer;
}

void CheckRunner::finish(Result<json> answer) {
    // Held until all is done: this may be called by one of them.
    const EventLoop::Source io = std::move(io_), exit = std::move(exit_), deadline = std::move(deadline_);
    child_.reset();
    if (answer && !running_probe_) {
        latest_ = *answer;
        latest_at_ = std::chrono::steady_clock::now();
    }
    std::vector<Waiting> answered;
    const auto same = [&](const Waiting& one) { return one.probe == running_probe_; };
    std::copy_if(waiting_.begin(), waiting_.end(), std::back_inserter(answered), same);
    std::erase_if(waiting_, same);
    start_next();
    for (const Waiting& one : answered) one.done(answer);
}

}  // namespace ingero
