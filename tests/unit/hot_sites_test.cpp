// The functions of a file that are attached to for each process alone, and the thread that does so in slices, on
// stand-ins for links.
#include "daemon/ingerod/probes/attach/hot_sites.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "bpf/event.h"
#include "core/model/op.h"
#include "core/model/time.h"
#include "daemon/ingerod/slices/slice_thread.h"

namespace ingero {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr uint64_t second = 1'000'000'000;
/// No process has such a pid.
constexpr ProcessKey storm{5'000'001, 10}, calm{5'000'002, 20}, third{5'000'003, 30};

/// Links that are sockets: the other end sees whether one is held.
class Links {
  public:
    HotSites::Link link() {
        return [this](int, std::span<const ProbeSite> sites, uint32_t pid) -> Result<UniqueFd> {
            const std::lock_guard lock(mutex_);
            if (refused_ && *refused_ == pid) return fail(ErrorCode::busy, "no memory");
            if (gone_ && *gone_ == pid) return fail(ErrorCode::not_found, "no such process");
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return fail(ErrorCode::internal, "");
            made_.push_back({pid, {}, false, UniqueFd(ends[1])});
            for (const ProbeSite& site : sites) {
                made_.back().ops.insert(site.op);
                made_.back().sliced = (site.cookie & INGERO_COOKIE_SLICED) != 0;
            }
            if (on_link) on_link(made_.back().sliced);
            return UniqueFd(ends[0]);
        };
    }
    /// A process, its ops, and whether they count in slices only.
    using Held = std::tuple<uint32_t, std::set<OpId>, bool>;
    std::vector<Held> held() {
        const std::lock_guard lock(mutex_);
        std::vector<Held> result;
        for (const Made& one : made_) {
            pollfd state{one.other_end.get(), POLLIN, 0};
            if (poll(&state, 1, 0) == 0) result.emplace_back(one.pid, one.ops, one.sliced);
        }
        return result;
    }
    void refuse(std::optional<uint32_t> pid) {
        const std::lock_guard lock(mutex_);
        refused_ = pid;
    }
    void lose(uint32_t pid) {
        const std::lock_guard lock(mutex_);
        gone_ = pid;
    }

    std::function<void(bool sliced)> on_link;

  private:
    struct Made {
        uint32_t pid;
        std::set<OpId> ops;
        bool sliced;
        UniqueFd other_end;
    };
    std::mutex mutex_;
    std::list<Made> made_;
    std::optional<uint32_t> refused_, gone_;
};

class HotSitesTest : public testing::Test {
  protected:
    static ProbeSite site(OpId op) {
        return {.file_offset = op, .cookie = op, .symbol = {}, .emulated = true, .op = op};
    }

    static constexpr OpId launch = op::cudaLaunchKernel, copy = op::cudaMemcpyAsync, fill = op::cudaMemsetAsync;
    const std::set<OpId> all_ops{launch, copy, fill};
    Links links;
    size_t detached = 0;
    bool is_unchanged = true;
    const std::shared_ptr<HotSites> sites = std::make_shared<HotSites>(
        HotSites::Host{.link = links.link(),
                       .is_unchanged = [this](int, std::span<const ProbeSite>) { return is_unchanged; },
                       .on_detached = [this] { ++detached; }},
        UniqueFd(), std::vector{site(launch), site(copy), site(fill)});
};

TEST_F(HotSitesTest, AreTheOnesThatMayBeThinnedAndTellNothingOfTheirThread) {
    EXPECT_TRUE(is_hot(op::cudaLaunchKernel));
    EXPECT_TRUE(is_hot(op::cuMemcpyAsync));
    EXPECT_FALSE(is_hot(op::cudaSetDevice));
    EXPECT_FALSE(is_hot(op::cudaStreamSync));
    EXPECT_FALSE(is_hot(op::cudaMalloc));
}

TEST_F(HotSitesTest, OfAFileThatWasRewrittenNothingIsAttachedTo) {
    ASSERT_TRUE(sites->attach_to_all());
    is_unchanged = false;
    EXPECT_FALSE(sites->attach_to({{calm}, {storm, {launch}}}));
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(0, all_ops, false)));
    is_unchanged = true;
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    is_unchanged = false;
    EXPECT_FALSE(sites->begin_slice());
    EXPECT_THAT(links.held(), testing::SizeIs(2));
}

TEST_F(HotSitesTest, OneThatCannotBeAttachedToHoldsUpNoOther) {
    ASSERT_TRUE(sites->attach_to_all());
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    links.refuse(third.pid);
    constexpr ProcessKey fourth{5'000'004, 40};
    EXPECT_FALSE(sites->attach_to({{calm}, {third}, {fourth}, {storm, {launch}}}));
    EXPECT_THAT(links.held(), testing::Contains(Links::Held(fourth.pid, all_ops, false)));
    EXPECT_THAT(links.held(), testing::SizeIs(3));
}

TEST_F(HotSitesTest, OneInSlicesLosesItsOpsAloneAndOthersNothing) {
    ASSERT_TRUE(sites->attach_to_all());
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(0, all_ops, false)));
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    EXPECT_THAT(links.held(), UnorderedElementsAre(Links::Held(storm.pid, {copy, fill}, false),
                                                   Links::Held(calm.pid, all_ops, false)));
    EXPECT_EQ(detached, 1u);
    ASSERT_TRUE(sites->begin_slice());
    EXPECT_THAT(links.held(), testing::Contains(Links::Held(storm.pid, {launch}, true)));
    sites->end_slice();
    EXPECT_THAT(links.held(), testing::SizeIs(2));
    EXPECT_EQ(detached, 2u);
    ASSERT_TRUE(sites->attach_to_all());
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(0, all_ops, false)));
}

TEST_F(HotSitesTest, NewcomersAreAttachedToAndOthersAreLeftAlone) {
    ASSERT_TRUE(sites->attach_to_all());
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    size_t made = 0;
    links.on_link = [&](bool) { ++made; };
    ASSERT_TRUE(sites->attach_to({{calm}, {third}, {storm, {launch}}}));
    EXPECT_EQ(made, 1u);
    EXPECT_THAT(links.held(), testing::Contains(Links::Held(third.pid, all_ops, false)));
    ASSERT_TRUE(sites->attach_to({{third}, {storm, {launch, fill}}, {calm, {copy}}}));
    EXPECT_THAT(links.held(),
                UnorderedElementsAre(Links::Held(third.pid, all_ops, false), Links::Held(storm.pid, {copy}, false),
                                     Links::Held(calm.pid, {launch, fill}, false)));
}

TEST_F(HotSitesTest, WhereALinkIsRefusedAllAreAttachedToAsBefore) {
    ASSERT_TRUE(sites->attach_to_all());
    links.refuse(storm.pid);
    EXPECT_FALSE(sites->attach_to({{calm}, {storm, {launch}}}));
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(0, all_ops, false)));
    EXPECT_EQ(detached, 1u) << "what was entered by the link that was made first has gone with it";
    links.refuse({});
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    links.refuse(storm.pid);
    EXPECT_FALSE(sites->begin_slice());
    EXPECT_THAT(links.held(), testing::SizeIs(2));
    links.refuse(0);
    EXPECT_FALSE(sites->attach_to_all());
    EXPECT_THAT(links.held(), testing::SizeIs(2)) << "nobody is let go before all are attached to";
}

TEST_F(HotSitesTest, WhoCannotBeAttachedToAnewKeepsWhatItHas) {
    ASSERT_TRUE(sites->attach_to_all());
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    links.refuse(storm.pid);
    EXPECT_FALSE(sites->attach_to({{storm, {launch, copy}}}));
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(storm.pid, {copy, fill}, false)));
    links.refuse({});
    ASSERT_TRUE(sites->attach_to({{storm, {launch, copy}}}));
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(storm.pid, {fill}, false)));
}

TEST_F(HotSitesTest, WhereNothingIsLetGoNoCallIsLost) {
    ASSERT_TRUE(sites->attach_to_all());
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    detached = 0;
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    ASSERT_TRUE(sites->attach_to({{calm}, {third}, {storm, {launch}}}));
    EXPECT_EQ(detached, 0u);
    ASSERT_TRUE(sites->attach_to({{third}, {storm, {launch}}}));
    EXPECT_EQ(detached, 1u);
}

TEST_F(HotSitesTest, AnotherProgramOfAProcessIsAttachedToAnew) {
    ASSERT_TRUE(sites->attach_to_all());
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    size_t made = 0;
    links.on_link = [&](bool) { ++made; };
    ASSERT_TRUE(sites->attach_to({{calm, {}, 1}, {storm, {launch}}}));
    EXPECT_EQ(made, 1u);
    EXPECT_THAT(links.held(), testing::SizeIs(2));
}

TEST_F(HotSitesTest, AProcessThatIsGoneHoldsNobodyUp) {
    ASSERT_TRUE(sites->attach_to_all());
    links.lose(storm.pid);
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(calm.pid, all_ops, false)));
    EXPECT_TRUE(sites->begin_slice());
}

TEST_F(HotSitesTest, NothingIsAttachedToAfterTheEnd) {
    ASSERT_TRUE(sites->attach_to_all());
    ASSERT_TRUE(sites->attach_to({{calm}, {storm, {launch}}}));
    ASSERT_TRUE(sites->begin_slice());
    sites->end();
    EXPECT_THAT(links.held(), IsEmpty());
    EXPECT_TRUE(sites->attach_to_all());
    EXPECT_TRUE(sites->attach_to({{third}, {storm, {launch}}}));
    EXPECT_TRUE(sites->begin_slice());
    EXPECT_THAT(links.held(), IsEmpty());
}

/// What the kernel side would read, each time that a slice is about to be attached for.
struct Word {
    uint64_t open_ns, close_ns, stands_for_ns;
};

TEST_F(HotSitesTest, SlicesComeOneAfterAnotherAndStandForAllOfTheTime) {
    constexpr size_t wanted = 5;
    ingero_slice slice{};
    std::vector<Word> words;
    std::promise<void> enough;
    links.on_link = [&](bool sliced) {
        if (!sliced || words.size() > wanted) return;
        words.push_back({slice.open_ns, slice.close_ns, slice.stands_for_ns});
        if (words.size() > wanted) enough.set_value();
    };
    ASSERT_TRUE(sites->attach_to_all());
    {
        SliceThread thread(slice);
        thread.set_share(20);
        thread.set({{sites, {{calm}, {storm, {launch}}}}});
        ASSERT_EQ(enough.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
        thread.set({});
        // Gone once all are attached to again.
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (links.held() != std::vector{Links::Held(0, all_ops, false)} && std::chrono::steady_clock::now() < until)
            std::this_thread::yield();
        EXPECT_GE(thread.figures().slices, wanted);
        EXPECT_EQ(thread.figures().trouble, "");
    }
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(0, all_ops, false)));
    EXPECT_EQ(words[0].close_ns, 0u);
    for (size_t i = 1; i <= wanted; ++i) {
        EXPECT_EQ(words[i].close_ns - words[i].open_ns, SliceThread::period_ns / 100) << "half of 2 %";
        if (i > 1 && words[i].stands_for_ns < 2 * second) {
            EXPECT_EQ(words[i].close_ns - words[i].stands_for_ns, words[i - 1].close_ns);
            EXPECT_GE(words[i].open_ns, words[i - 1].close_ns);
        }
    }
}

/// The words of each slice, as they are when the next one is about to be attached for.
class SlicesTaken {
  public:
    struct One {
        uint64_t close_ns, stands_for_ns, stands_for_new_ns;
        uint64_t from_ns() const { return close_ns - stands_for_ns; }
        uint64_t new_from_ns() const { return close_ns - stands_for_new_ns; }
        bool is_cut() const { return stands_for_ns >= 5 * second; }  ///< of more time nothing is told
    };
    SlicesTaken(Links& links, const ingero_slice& slice) {
        links.on_link = [&](bool sliced) {
            const std::lock_guard lock(mutex_);
            if (sliced && slice.number != 0)
                taken_[slice.number] = {slice.close_ns, slice.stands_for_ns, slice.stands_for_new_ns};
        };
    }
    /// The latest of them, once `more` have been.
    uint64_t wait(uint64_t more) {
        const uint64_t wanted = latest() + more;
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (latest() < wanted && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        return latest();
    }
    std::map<uint64_t, One> all() const {
        const std::lock_guard lock(mutex_);
        return taken_;
    }

  private:
    uint64_t latest() const {
        const std::lock_guard lock(mutex_);
        return taken_.empty() ? 0 : taken_.rbegin()->first;
    }

    mutable std::mutex mutex_;
    std::map<uint64_t, One> taken_;
};

class RunningSlices : public HotSitesTest {
  protected:
    void SetUp() override {
        ASSERT_TRUE(sites->attach_to_all());
        thread.set_share(20);
    }

    ingero_slice slice{};
    SlicesTaken taken{links, slice};
    SliceThread thread{slice};
};

// Another process comes into slices between two of them: who was there already goes on from its last one.
TEST_F(RunningSlices, AProcessThatComesTakesNothingFromThoseThatAreThere) {
    thread.set({{sites, {{calm}, {storm, {launch}}}}});
    taken.wait(2);
    const uint64_t asked_ns = monotonic_now_ns();
    thread.set({{sites, {{calm, {launch}}, {storm, {launch}}}}});
    ASSERT_GE(taken.wait(3), 5u);
    uint64_t last_close_ns = 0;
    size_t newcomers = 0;
    bool is_cut = false;
    for (const auto& [number, one] : taken.all()) {
        is_cut |= one.is_cut();
        if (last_close_ns != 0 && !one.is_cut()) {
            EXPECT_EQ(one.from_ns(), last_close_ns) << number;
        }
        EXPECT_GE(one.new_from_ns(), one.from_ns());
        if (one.new_from_ns() != one.from_ns()) {
            EXPECT_GE(one.new_from_ns(), asked_ns) << "it was seen in full up to then";
            ++newcomers;
        }
        last_close_ns = one.close_ns;
    }
    EXPECT_TRUE(newcomers == 1 || is_cut) << newcomers;
}

// To the kernel side its threads are none that come newly: nothing from before it was back counts.
TEST_F(RunningSlices, OfAProcessThatIsBackSoonNothingIsCountedTwice) {
    const std::vector<SlicedFile> both{{sites, {{calm, {launch}}, {storm, {launch}}}}};
    thread.set(both);
    taken.wait(1);
    thread.set({{sites, {{calm}, {storm, {launch}}}}});
    taken.wait(2);
    const uint64_t back_ns = monotonic_now_ns();
    const uint64_t number = thread.set(both);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (thread.figures().applied < number && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    taken.wait(2);
    const auto all = taken.all();
    const auto later = std::find_if(all.begin(), all.end(), [&](const auto& one) {
        return one.second.from_ns() >= back_ns || one.second.new_from_ns() >= back_ns;
    });
    ASSERT_NE(later, all.end());
    EXPECT_GE(later->second.from_ns(), back_ns);
}

// It is seen in full until it is attached to anew, so that no slice stands for the time before.
TEST_F(RunningSlices, WhoIsRefusedALinkComesIntoSlicesOnceItHasOne) {
    thread.set({{sites, {{calm}, {storm, {launch}}}}});
    taken.wait(1);
    links.refuse(calm.pid);
    thread.set({{sites, {{calm, {launch}}, {storm, {launch}}}}});
    taken.wait(2);
    EXPECT_EQ(thread.figures().trouble, "no memory");
    const uint64_t allowed_ns = monotonic_now_ns();
    links.refuse({});
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!thread.figures().trouble.empty() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    taken.wait(2);
    const auto all = taken.all();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const auto& one) {
        return one.second.new_from_ns() >= allowed_ns &&
               (one.second.is_cut() || one.second.new_from_ns() > one.second.from_ns());
    }));
}

TEST_F(HotSitesTest, TroubleIsToldAndTriedAgain) {
    ingero_slice slice{};
    ASSERT_TRUE(sites->attach_to_all());
    links.refuse(calm.pid);
    SliceThread thread(slice);
    thread.set_share(20);
    thread.set({{sites, {{calm}, {storm, {launch}}}}});
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (thread.figures().trouble.empty() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(thread.figures().trouble, "no memory");
    EXPECT_THAT(links.held(), ElementsAre(Links::Held(0, all_ops, false)));
    links.refuse({});
    while (thread.figures().slices == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_GT(thread.figures().slices, 0u);
    EXPECT_EQ(thread.figures().trouble, "");
}

}  // namespace
}  // namespace ingero
