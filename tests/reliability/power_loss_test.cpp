// Power is lost at each write and each sync of a workload: afterwards the store opens, is whole, has every acknowledged
// batch once, and goes on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>

#include "core/store/verify.h"
#include "tests/reliability/write_log.h"
#include "tests/support/seed.h"
#include "tests/unit/store_fixture.h"

namespace ingero {
namespace {

using test::BrokenSync;
using test::PowerLoss;
using test::WriteLog;

constexpr uint64_t cap = 16 << 20;

bool long_form() {
    return std::getenv("INGERO_LONG") != nullptr;
}

/// What was acknowledged when so many operations had returned.
struct Acknowledged {
    size_t operations = 0;
    uint64_t first = 1;  ///< sequences that are stored
    uint64_t last = 0;
    uint64_t losses = 0;
};

struct Recording {
    std::vector<test::FileOperation> operations;
    std::vector<Acknowledged> acknowledged;
    size_t first_cut = 0;  ///< the first that is of interest
    size_t refused = 0;    ///< commits
};

/// One call in a few hundred bytes, or much the same over and over, which compresses.
Event make_call(uint64_t sequence) {
    if (sequence / 2'000 % 2 == 0) return make_event(sequence, sequence * 1'000, 500);
    Event event;
    event.sequence = sequence;
    event.start_ns = sequence * 1'000;
    event.duration_ns = noise(sequence % 64, 1) % 900;
    event.args[0] = noise(sequence % 64, 2);
    return event;
}

class Recorder {
  public:
    explicit Recorder(unsigned seed) : random_(seed), log_(directory_.path()) { open("boot-a"); }

    void open(const std::string& boot_id) {
        writer_ =
            open_writer(directory_.path(), {.max_size_bytes = cap, .compress_after_ns = 20'000'000, .clock = [this] {
                                                return ClockTriple{now_, now_, now_};
                                            }});
        ASSERT_TRUE(writer_);
        ASSERT_TRUE(writer_->begin_session(make_session(boot_id)));
        dropped_before_ = dropped();
        acknowledge();
    }
    void close() {
        ASSERT_TRUE(writer_->end_session());
        dropped_before_ = dropped();
        writer_.reset();
        acknowledge();
    }

    /// False where the store had no room, and then has nothing of it.
    bool commit(size_t rows) {
        Batch batch;
        for (size_t i = 0; i < rows; ++i) batch.events.push_back(make_call(last_ + 1 + i));
        const uint64_t start = (last_ + 1) * 1'000;
        now_ = start + rows * 1'000;
        batch.covered_until_ns = now_;
        batch.losses = {{.from_ns = start, .to_ns = now_, .op = 0x103, .lost_ring = 1}};
        batch.processes = {
            {.key = {1 + static_cast<uint32_t>(random_() % 9), 7}, .comm = "c", .cgroup = "", .unit = ""}};
        if (!writer_->commit(batch)) {
            expect_drops_counted();
            return false;
        }
        last_ += rows;
        ++losses_;
        acknowledge();
        return true;
    }
    void tidy() {
        const auto tidied = writer_->tidy();
        EXPECT_TRUE(tidied || tidied.error().code == ErrorCode::limit) << tidied.error().message;
        acknowledge();
    }
    uint64_t dropped() const {
        return writer_ ? dropped_before_ + writer_->figures().events_dropped_for_space : dropped_before_;
    }
    size_t refused() const { return refused_; }
    uint64_t random(uint64_t below) { return random_() % below; }
    std::unique_ptr<StoreSnapshot> snapshot() { return open_snapshot(directory_.path()); }
    size_t operations() const { return log_.size(); }
    Recording take(size_t first_cut = 0) { return {log_.take(), std::move(acknowledged_), first_cut}; }

  private:
    /// To make room for what then failed calls may have gone, which is as true as if it had not.
    void expect_drops_counted() {
        ++refused_;
        const auto events = scan_all(*snapshot(), 0);
        ASSERT_TRUE(events);
        uint64_t first = UINT64_MAX;
        for (const Event& event : *events) first = std::min(first, event.sequence);
        EXPECT_EQ(first, 1 + dropped());
    }
    void acknowledge() { acknowledged_.push_back({log_.size(), 1 + dropped(), last_, losses_}); }

    const TemporaryDirectory directory_;
    std::mt19937_64 random_;
    WriteLog log_;
    uint64_t now_ = 1'000;
    std::unique_ptr<StoreWriter> writer_;
    std::vector<Acknowledged> acknowledged_;
    uint64_t last_ = 0, losses_ = 0, dropped_before_ = 0;
    size_t refused_ = 0;
};

/// Small commits and what becomes of them: merged, compressed, read meanwhile, by two daemons and over a restart.
Recording record_small_batches(unsigned seed) {
    Recorder recorder(seed);
    std::unique_ptr<StoreSnapshot> held;
    const int rounds = long_form() ? 600 : 130;
    for (int round = 0; round < rounds; ++round) {
        recorder.commit(round % 16 == 7 ? 500 : 1 + recorder.random(60));
        recorder.tidy();
        if (round % 40 == 20) held = recorder.snapshot();
        if (round % 40 == 32) held.reset();
        if (round % 60 == 50) {
            recorder.close();
            recorder.open(round % 120 == 50 ? "boot-a" : "boot-b");
        }
    }
    recorder.close();
    return recorder.take();
}

/// A store at its cap, which lets the oldest go, with a reader now and then.
Recording record_at_the_cap(unsigned seed) {
    Recorder recorder(seed);
    while (recorder.dropped() == 0 && recorder.commit(3'000)) {
    }
    const size_t first_cut = recorder.operations();
    std::unique_ptr<StoreSnapshot> held;
    for (int round = 0; round < 12; ++round) {
        recorder.commit(500 + recorder.random(2'500));
        recorder.tidy();
        if (round == 4) held = recorder.snapshot();
        if (round == 7) held.reset();
    }
    recorder.close();
    Recording recording = recorder.take(first_cut);
    recording.refused = recorder.refused();
    return recording;
}

/// Checks what is left after a cut. Faults are texts, so that a test can expect them.
class Survivor {
  public:
    Survivor(const PowerLoss::Image& image, const Recording& recording, size_t cut) {
        if (image.exists) write_file(directory_.data_file(), image.bytes);
        for (const Acknowledged& one : recording.acknowledged) {
            if (one.operations <= cut) at_least_ = one;
            at_most_ = one;
            if (one.operations > cut) break;
        }
        thorough_ = cut % 4 == 0;
        begun_ = !recording.acknowledged.empty() && recording.acknowledged.front().operations <= cut;
    }

    std::string fault() {
        std::string text = read();
        if (text.empty()) text = write();
        return text;
    }

  private:
    std::string read() {
        auto reader = StoreReader::open(directory_.path());
        if (!reader && reader.error().code == ErrorCode::not_found && !begun_) return {};
        if (!reader) return "it does not open: " + reader.error().message;
        if (const std::string text = check_whole(**reader); !text.empty()) return text;
        auto snapshot = (*reader)->snapshot();
        if (!snapshot) return "no snapshot: " + snapshot.error().message;
        last_ = (*snapshot)->figures().last_sequence;
        if (last_ != at_least_.last && last_ != at_most_.last)
            return "it ends at " + std::to_string(last_) + ", acknowledged were " + std::to_string(at_least_.last);
        // Each sequence once and none above the last: so many of them are all of them.
        if (!thorough_ && at_most_.first == 1 && events_ == last_) return {};
        return check_rows(**snapshot);
    }

    std::string check_whole(StoreReader& reader) {
        const auto verified = reader.verify();
        if (!verified) return "it cannot be verified: " + verified.error().message;
        events_ = verified->events;
        if (verified->is_clean()) return {};
        const StoreDamage& first = verified->damages.front();
        return first.table + " " + first.key + ": " + first.what;
    }

    std::string check_rows(const StoreSnapshot& snapshot) const {
        std::vector<uint64_t> found;
        uint64_t losses = 0;
        for (uint32_t boot = 0; boot < 4; ++boot) {
            const auto events = scan_all(snapshot, boot);
            const auto rows = snapshot.losses(boot, everything);
            if (!events || !rows) return "it cannot be read";
            for (const Event& event : *events) {
                found.push_back(event.sequence);
                if (event.sequence % 7 == 0 && all_fields(event) != all_fields(make_call(event.sequence)))
                    return "event " + std::to_string(event.sequence) + " is not what it was";
            }
            for (const LossRow& row : *rows) losses += row.lost();
        }
        std::sort(found.begin(), found.end());
        const uint64_t first = found.empty() ? last_ + 1 : found.front();
        if (first < at_least_.first || first > at_most_.first)
            return "it begins at " + std::to_string(first) + ", not at " + std::to_string(at_least_.first);
        if (found.size() != last_ + 1 - first || std::adjacent_find(found.begin(), found.end()) != found.end())
            return std::to_string(found.size()) + " events from " + std::to_string(first) + " to " +
                   std::to_string(last_);
        const uint64_t expected = last_ == at_least_.last ? at_least_.losses : at_most_.losses;
        if (first == 1 && losses != expected)
            return std::to_string(losses) + " losses in place of " + std::to_string(expected);
        return {};
    }

    /// As the next daemon would.
    std::string write() {
        auto writer = StoreWriter::open(directory_.path(), {.max_size_bytes = cap});
        if (!writer) return "no writer: " + writer.error().message;
        if (auto begun = (*writer)->begin_session(make_session("boot-c")); !begun)
            return "no session: " + begun.error().message;
        Batch batch;
        for (uint64_t i = 1; i <= 20; ++i) batch.events.push_back(make_call((*writer)->figures().last_sequence + i));
        if (auto committed = (*writer)->commit(batch); !committed) return "no commit: " + committed.error().message;
        if (auto tidied = thorough_ ? (*writer)->tidy() : Result<bool>(false);
            !tidied && tidied.error().code != ErrorCode::limit)
            return "no upkeep: " + tidied.error().message;
        writer->reset();
        auto reader = StoreReader::open(directory_.path());
        if (!reader) return "it does not open after a commit: " + reader.error().message;
        auto snapshot = (*reader)->snapshot();
        if (!snapshot || (*snapshot)->figures().last_sequence != last_ + 20) return "the new commit is not there";
        snapshot->reset();
        return thorough_ ? check_whole(**reader) : "";
    }

    const TemporaryDirectory directory_;
    Acknowledged at_least_, at_most_;
    bool begun_ = false;
    bool thorough_ = false;  ///< all is verified after the new commit too
    uint64_t last_ = 0, events_ = 0;
};

struct Outcome {
    size_t cuts = 0, images = 0, faults = 0;
    std::string first_fault;
};

/// Each cut with nothing, all, and only the last of what was not synced, and some parts of it at random.
Outcome cut_everywhere(const Recording& recording, BrokenSync broken, size_t every, int at_random, unsigned seed) {
    Outcome outcome;
    std::mt19937_64 random(seed);
    PowerLoss loss(recording.operations, broken);
    while (loss.next()) {
        if (loss.cut() < recording.first_cut || random() % every != 0) continue;
        ++outcome.cuts;
        std::vector<PowerLoss::Kept> kept = {PowerLoss::Kept::nothing};
        if (loss.has_choice()) {
            kept.insert(kept.end(), {PowerLoss::Kept::everything, PowerLoss::Kept::only_the_last});
            kept.insert(kept.end(), static_cast<size_t>(at_random), PowerLoss::Kept::at_random);
        }
        for (const PowerLoss::Kept which : kept) {
            ++outcome.images;
            Survivor survivor(loss.image(which, random), recording, loss.cut());
            const std::string fault = survivor.fault();
            if (fault.empty()) continue;
            if (++outcome.faults == 1)
                outcome.first_fault = "cut " + std::to_string(loss.cut()) + " of " +
                                      std::to_string(recording.operations.size()) + ", image " +
                                      std::to_string(static_cast<int>(which)) + ": " + fault;
        }
    }
    return outcome;
}

class PowerLossAt : public testing::Test {
  protected:
    /// Thousands of stores: in memory, where a sync costs nothing.
    static void SetUpTestSuite() {
        if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
    }

    void SetUp() override {
        seed_ = static_cast<unsigned>(test::chosen_seed());
        begun_ = std::chrono::steady_clock::now();
    }

    void tell(const Outcome& outcome) const {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
        std::cout << outcome.cuts << " cuts, " << outcome.images << " images, " << outcome.faults << " faults, "
                  << took.count() << " s, INGERO_SEED=" << seed_ << "\n";
    }

    unsigned seed_ = 0;
    std::chrono::steady_clock::time_point begun_;
};

TEST_F(PowerLossAt, AnyWriteOfSmallBatchesLosesNothingAcknowledged) {
    const Recording recording = record_small_batches(seed_);
    const Outcome outcome = cut_everywhere(recording, BrokenSync::none, 1, long_form() ? 8 : 1, seed_);
    tell(outcome);
    EXPECT_EQ(outcome.faults, 0u) << outcome.first_fault;
    EXPECT_GT(outcome.images, 2'000u);
}

// With these sizes a commit finds too little room after some was made for it.
TEST_F(PowerLossAt, NoneACommitThatFailsCountsWhatWentForIt) {
    EXPECT_GE(record_at_the_cap(3169713444).refused, 1u);
}

TEST_F(PowerLossAt, AnyWriteOfAFullStoreLosesNothingAcknowledged) {
    const Recording recording = record_at_the_cap(seed_);
    ASSERT_LT(recording.first_cut, recording.operations.size());
    const Outcome outcome =
        cut_everywhere(recording, BrokenSync::none, long_form() ? 1 : 6, long_form() ? 4 : 1, seed_);
    tell(outcome);
    EXPECT_EQ(outcome.faults, 0u) << outcome.first_fault;
    EXPECT_GT(outcome.images, 10u);
}

TEST_F(PowerLossAt, AnyWriteIsNoticedWhereSyncsDoNothing) {
    const Recording recording = record_small_batches(seed_);
    for (const BrokenSync broken : {BrokenSync::data, BrokenSync::meta}) {
        const Outcome outcome = cut_everywhere(recording, broken, 40, 2, seed_);
        tell(outcome);
        EXPECT_GT(outcome.faults, outcome.cuts / 4) << "a test that sees no broken disk sees nothing";
    }
}

}  // namespace
}  // namespace ingero
