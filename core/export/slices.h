// Events as slices on tracks: what a Perfetto and a Chrome trace have in common. A thread has a track for its calls,
// one for what the kernel reported about it, source by source (imported traces have that), and one for the time that
// its calls were off the CPU, where only how long is stored: those slices stand at the start of their call.
//
// Slices of a track nest. What overlaps another in part, as a trace that was made up or imported may have it, goes to a
// further lane of the track.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/export/page_writer.h"
#include "core/model/op.h"
#include "core/sql/catalogue.h"
#include "core/sql/events/event_row.h"

namespace ingero {

/// What a reader of a slice wants to know besides its name and times, and as SQL names it. What is 0 of the numbers
/// that mostly are is left out.
struct SliceArgument {
    EventColumn column = EventColumn::id;
    bool is_text = false;
    int64_t number = 0;
    std::string text;
};

struct Slice {
    uint64_t start_ns = 0;  ///< CLOCK_REALTIME
    uint64_t end_ns = 0;
    uint64_t id = 0;
    uint32_t boot = 0;  ///< of the index
    ProcessKey process;
    uint32_t tid = 0;
    uint8_t depth = 0;
    OpId op = 0;
    std::string_view name;
    uint64_t runnable_ns = 0;  ///< with blocked_ns at most the duration
    uint64_t blocked_ns = 0;
    std::string blocked_on;
    /// The thread that ended a wait, and when; tid 0: an interrupt, not known, or no wait.
    struct Waker {
        uint32_t pid = 0, tid = 0;
        uint64_t at_ns = 0;  ///< CLOCK_REALTIME
        std::string comm;
    };
    Waker waker;
    std::vector<SliceArgument> arguments;
};

struct Track {
    static constexpr uint8_t calls = 0;
    static constexpr uint8_t off_cpu = 255;
    static constexpr uint8_t first_history = off_cpu - history_kinds;

    uint32_t boot = 0;
    ProcessKey process;
    uint32_t tid = 0;
    uint8_t kind = calls;  ///< or off_cpu, a HistoryKind from first_history on, or a source
    uint32_t lane = 0;
    auto operator<=>(const Track&) const = default;
    bool is_thread() const { return kind == calls && lane == 0; }
    bool is_of_process() const { return kind >= first_history && kind != off_cpu; }
    /// Of the thread's track.
    Track thread() const { return {boot, process, tid, calls, 0}; }
};

class SliceWriter : public PageWriter {
  public:
    explicit SliceWriter(const PageContext& context);

    Result<void> begin(std::string& out) override;
    Result<void> keep(EventCursor& rows) override;
    void write_kept(std::string& out) override;

  protected:
    /// An answer's gap: a time in which calls of some process, or of all, may have been made unseen.
    virtual void write_gap(std::string& out, const Gap& gap, uint32_t lane) = 0;
    virtual void write_head(std::string& out) = 0;
    /// Before the first slice of the process or track in this page.
    virtual void describe_process(std::string& out, const Track& track) = 0;
    virtual void describe_track(std::string& out, const Track& track) = 0;
    virtual void write_slice(std::string& out, const Track& track, const Slice& slice) = 0;
    /// A part of a call in which its thread was off the CPU.
    virtual void write_part(std::string& out, const Track& track, const Slice& call, std::string_view name,
                            uint64_t start_ns, uint64_t length_ns) = 0;

    /// That `waker` woke the thread of the wait, whose track is `woken`. Nothing where a format has no such thing.
    virtual void write_wake_up(std::string&, const Track& /*waker*/, const Track& /*woken*/, const Slice& /*wait*/) {}

    virtual void write_history(std::string& out, const Track& track, const HistorySlice& slice) = 0;
    /// Where the slice's stall was: `stalled` is the track of its thread. Nothing where a format has no such thing.
    virtual void write_stall(std::string&, const Track& /*stalled*/, const HistorySlice&) {}

    /// For a program that knows one machine only: those of a store's further nodes come after all that there can be.
    int64_t shown_pid(uint32_t boot, uint32_t pid) const;
    /// "python", "python on node-2, pid 71".
    std::string process_name(const Track& track) const;
    std::string track_name(const Track& track) const;
    /// CLOCK_REALTIME.
    uint64_t process_start(const Track& track) const;
    /// The same number for the same track in every page.
    static uint64_t number_of(const Track& track);
    static uint64_t number_of_process(const Track& track);
    /// Of what follows from a wait, in the trace.
    static uint64_t number_of_flow(const Slice& wait);
    /// Of what leads from a request to the call in which it was held up.
    static uint64_t number_of_flow(const LongestStall& stall);

    const PageContext context_;

  private:
    /// When the open slices of a lane end, outermost first.
    using Lane = std::vector<uint64_t>;

    void write(std::string& out, const Slice& slice);
    void write(std::string& out, const HistorySlice& slice);
    void write_parts(std::string& out, const Slice& slice);
    ProcessKey process_at(uint32_t boot, uint32_t pid, uint64_t at_ns);
    void describe(std::string& out, const Track& track);

    std::vector<uint32_t> nodes_;  ///< by boot
    LastProcess last_;
    std::optional<std::map<ProcessKey, uint32_t>> boots_of_processes_;  ///< once asked for
    std::vector<Slice> kept_;
    size_t kept_count_ = 0;
    std::map<Track, std::vector<Lane>> lanes_;  ///< by the track of lane 0
    std::set<Track> described_;
    std::set<std::pair<uint32_t, ProcessKey>> described_processes_;
};

/// The lane in which a slice nests; a new one where it nests in none.
uint32_t take_lane(std::vector<std::vector<uint64_t>>& lanes, uint64_t start_ns, uint64_t end_ns);

}  // namespace ingero
