// Who attaches waits for whoever maps the file; the loop does not, and what is given up is gone before what comes next.
#include "daemon/ingerod/probes/attach/attach_thread.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace ingero;

namespace {

using testing::ElementsAre;

constexpr uint64_t ms = 1'000;  ///< in us

/// What was done, in order. Any thread.
class Log {
  public:
    void put(std::string line) {
        const std::lock_guard lock(mutex_);
        lines_.push_back(std::move(line));
    }
    std::vector<std::string> lines() {
        const std::lock_guard lock(mutex_);
        return lines_;
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

class Logged : public AttachedLibrary {
  public:
    Logged(Log& log, std::string name) : log_(log), name_(std::move(name)) {}
    ~Logged() override { log_.put("detached " + name_); }
    size_t sites() const override { return 1; }

  private:
    Log& log_;
    const std::string name_;
};

/// Attaches to nothing; to some only when it is let.
class AnAttachThread : public testing::Test {
  protected:
    /// Before it is asked for.
    void hold_up(const std::string& name) { held_up_ = name; }
    void until_it_waits() { waits_.get_future().wait(); }
    void let_go() { go_.set_value(); }

    AttachThread::Pending attach(const std::string& name) {
        ProbeSite site{};
        site.symbol = name;
        return thread_->attach(std::make_shared<UniqueFd>(), {site}, [this, name](auto result) {
            log_.put("done " + name);
            thread_->detach(std::move(*result));
        });
    }

    void run_until(const std::string& line) {
        const auto is_there = [&] {
            const auto lines = log_.lines();
            return std::find(lines.begin(), lines.end(), line) != lines.end();
        };
        while (!is_there())
            if (sd_event_run(loop_.get(), 60'000 * ms) <= 0) FAIL() << "not " << line;
    }

    EventLoop loop_;
    Log log_;
    std::string held_up_;
    std::promise<void> waits_, go_;
    std::shared_future<void> gone_ = go_.get_future().share();
    std::optional<AttachThread> thread_{std::in_place, loop_, [this](int, std::span<const ProbeSite> sites) {
                                            const std::string name = sites[0].symbol;
                                            log_.put("attaching " + name);
                                            if (held_up_ == name) {
                                                waits_.set_value();
                                                gone_.wait();
                                            }
                                            return Result<AttachThread::Attached>(std::make_unique<Logged>(log_, name));
                                        }};
};

TEST_F(AnAttachThread, leaves_the_loop_to_others_while_it_waits) {
    hold_up("a");
    const auto a = attach("a");
    until_it_waits();
    const auto timer = loop_.add_timer(ms, [this] {
        log_.put("the loop's turn");
        let_go();
    });
    run_until("done a");
    thread_.reset();
    EXPECT_THAT(log_.lines(), ElementsAre("attaching a", "the loop's turn", "done a", "detached a"));
}

TEST_F(AnAttachThread, has_detached_what_was_given_up_before_it_attaches_what_is_asked_for_next) {
    hold_up("a");
    auto a = attach("a");
    until_it_waits();
    a = {};
    const auto b = attach("b");
    let_go();
    run_until("done b");
    thread_.reset();
    EXPECT_THAT(log_.lines(), ElementsAre("attaching a", "detached a", "attaching b", "done b", "detached b"));
}

TEST_F(AnAttachThread, has_detached_so_too_what_the_loop_had_not_heard_of) {
    hold_up("b");
    auto a = attach("a");
    const auto b = attach("b");
    until_it_waits();
    a = {};
    const auto c = attach("c");
    let_go();
    run_until("done c");
    const auto lines = log_.lines();
    const auto place = [&](const char* line) { return std::find(lines.begin(), lines.end(), line); };
    EXPECT_NE(place("attaching c"), lines.end());
    EXPECT_LT(place("detached a"), place("attaching c"));
    EXPECT_EQ(place("done a"), lines.end());
}

TEST_F(AnAttachThread, ends_when_all_is_detached_and_attaches_nothing_more) {
    hold_up("a");
    auto a = attach("a");
    auto b = attach("b");
    until_it_waits();
    a = {};
    b = {};
    std::thread later([this] { let_go(); });
    thread_.reset();
    later.join();
    EXPECT_THAT(log_.lines(), ElementsAre("attaching a", "detached a"));
}

TEST_F(AnAttachThread, holds_no_file_that_was_given_up_before_its_turn) {
    hold_up("a");
    const auto a = attach("a");
    until_it_waits();
    const auto file = std::make_shared<UniqueFd>();
    auto b = thread_->attach(file, {ProbeSite{}}, [file](auto) { FAIL() << "it was given up"; });
    EXPECT_GT(file.use_count(), 1);
    b = {};
    EXPECT_EQ(file.use_count(), 1);
    let_go();
    run_until("done a");
}

}  // namespace
