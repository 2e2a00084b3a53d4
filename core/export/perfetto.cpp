// Perfetto's protobuf trace: a TracePacket a begin and an end, and two a wake-up. Field numbers are those of the
// published schema, https://perfetto.dev/docs/reference/trace-packet-proto. The reader sorts by time, and packets of
// one time stay in the order of the file.
#include "core/export/protobuf.h"
#include "core/export/slices.h"

namespace ingero {

namespace {

namespace trace {
constexpr uint32_t packet = 1;
}
namespace packet {
constexpr uint32_t clock_snapshot = 6, timestamp = 8, sequence_id = 10, track_event = 11, interned_data = 12,
                   sequence_flags = 13, defaults = 59, track_descriptor = 60, first_on_sequence = 87;
constexpr uint64_t state_cleared = 1, needs_state = 2;
}  // namespace packet
namespace defaults {
constexpr uint32_t timestamp_clock_id = 58;
}
namespace clock_snapshot {
constexpr uint32_t clocks = 1, primary_trace_clock = 2, clock_id = 1, timestamp = 2;
constexpr uint64_t realtime = 1, monotonic = 3, boottime = 6;
}  // namespace clock_snapshot
namespace descriptor {
constexpr uint32_t uuid = 1, name = 2, process = 3, thread = 4, parent_uuid = 5;
}
namespace process {
constexpr uint32_t pid = 1, name = 6, start_timestamp_ns = 7;
}
namespace thread {
constexpr uint32_t pid = 1, tid = 2;
}
namespace event {
constexpr uint32_t category_iids = 3, annotations = 4, type = 9, name_iid = 10, track_uuid = 11, categories = 22,
                   name = 23, flow_ids = 47, terminating_flow_ids = 48;
constexpr uint64_t slice_begin = 1, slice_end = 2, instant = 3;
}  // namespace event
namespace interned {
constexpr uint32_t categories = 1, names = 2, annotation_names = 3, iid = 1, name = 2;
}
namespace annotation {
constexpr uint32_t name_iid = 1, int_value = 4, string_value = 6, name = 10;
}

/// Of the trace's own tracks, which no process has.
constexpr uint64_t gap_track = 2;

class PerfettoWriter final : public SliceWriter {
  public:
    using SliceWriter::SliceWriter;

    void end(std::string&, bool) override {}

  protected:
    // Each page interns anew, and to the same numbers: an op's own, a column's own.
    void write_head(std::string& out) override {
        ProtoMessage fields, clock_defaults;
        clock_defaults.number(defaults::timestamp_clock_id, clock_snapshot::realtime);
        fields.message(packet::defaults, clock_defaults);
        if (context_.is_first) fields.number(packet::first_on_sequence, 1);
        write_packet(out, fields, packet::state_cleared);
        if (context_.is_first) write_clocks(out);
    }

    void write_gap(std::string& out, const Gap& gap, uint32_t lane) override {
        const uint64_t track = gap_track + 2 * lane;
        ProtoMessage description, event;
        description.number(descriptor::uuid, track);
        description.text(descriptor::name, "not recorded");
        write_described(out, description);
        event.text(event::categories, "gap");
        event.text(event::name, gap.reason);
        write_begin_and_end(out, event, track, gap.from_ns, gap.to_ns, {});
    }

    void describe_process(std::string& out, const Track& track) override {
        ProtoMessage fields, description;
        fields.number(process::pid, static_cast<uint64_t>(shown_pid(track.boot, track.process.pid)));
        if (const std::string name = process_name(track); !name.empty()) fields.text(process::name, name);
        fields.number(process::start_timestamp_ns, process_start(track));
        description.number(descriptor::uuid, number_of_process(track));
        description.message(descriptor::process, fields);
        write_described(out, description);
    }

    void describe_track(std::string& out, const Track& track) override {
        ProtoMessage description;
        description.number(descriptor::uuid, number_of(track));
        if (track.is_thread()) {
            ProtoMessage fields;
            fields.number(thread::pid, static_cast<uint64_t>(shown_pid(track.boot, track.process.pid)));
            fields.number(thread::tid, static_cast<uint64_t>(shown_pid(track.boot, track.tid)));
            description.message(descriptor::thread, fields);
            description.number(descriptor::parent_uuid, number_of_process(track));
        } else {
            description.text(descriptor::name, track_name(track));
            description.number(descriptor::parent_uuid,
                               track.is_of_process() ? number_of_process(track) : number_of(track.thread()));
        }
        write_described(out, description);
    }

    void write_slice(std::string& out, const Track& track, const Slice& slice) override {
        const uint8_t source = op_source(slice.op);
        interned_.clear();
        event_.clear();
        intern(interned::categories, source, [&] { return sql_source_name(source); });
        event_.number(event::category_iids, source);
        intern(interned::names, slice.op, [&] { return std::string(slice.name); });
        event_.number(event::name_iid, slice.op);
        for (const SliceArgument& argument : slice.arguments) annotate(argument);
        write_begin_and_end(out, event_, number_of(track), slice.start_ns, slice.end_ns, interned_.bytes());
    }

    void write_part(std::string& out, const Track& track, const Slice& call, std::string_view name, uint64_t start_ns,
                    uint64_t length_ns) override {
        interned_.clear();
        event_.clear();
        event_.text(event::categories, "off-cpu");
        event_.text(event::name, name);
        annotate({EventColumn::id, false, static_cast<int64_t>(call.id), {}});
        write_begin_and_end(out, event_, number_of(track), start_ns, start_ns + length_ns, interned_.bytes());
    }

    /// Two instants of one time, with an arrow from the first to the second.
    void write_wake_up(std::string& out, const Track& waker, const Track& woken, const Slice& wait) override {
        const uint64_t flow = number_of_flow(wait);
        const auto write = [&](const Track& track, std::string_view name, uint32_t end_of_flow) {
            interned_.clear();
            event_.clear();
            event_.text(event::categories, "wake-up");
            event_.text(event::name, name);
            annotate({EventColumn::id, false, static_cast<int64_t>(wait.id), {}});
            event_.number(event::type, event::instant);
            event_.number(event::track_uuid, number_of(track));
            event_.fixed64(end_of_flow, flow);
            write_event(out, event_, wait.waker.at_ns, interned_.bytes());
        };
        const std::string who = wait.waker.comm.empty() ? std::string() : wait.waker.comm + " ";
        write(waker, who + "wakes " + std::to_string(wait.tid), event::flow_ids);
        write(woken, "woken", event::terminating_flow_ids);
    }

    void write_history(std::string& out, const Track& track, const HistorySlice& slice) override {
        event_.clear();
        event_.text(event::categories, to_string(slice.kind));
        event_.text(event::name, slice.name);
        for (const auto& [name, text] : slice.texts) annotate(name, text);
        for (const auto& [name, number] : slice.numbers) annotate(name, number);
        if (slice.stall) event_.fixed64(event::flow_ids, number_of_flow(*slice.stall));
        write_begin_and_end(out, event_, number_of(track), slice.start_ns, slice.end_ns, {});
    }

    /// An instant in the call, to which an arrow leads from the request.
    void write_stall(std::string& out, const Track& stalled, const HistorySlice& slice) override {
        const LongestStall& stall = *slice.stall;
        event_.clear();
        event_.text(event::categories, "stall");
        event_.text(event::name, "holds up " + slice.name);
        annotate("id", stall.id);
        annotate("stalled_ns", stall.ns);
        annotate("why", stall.why);
        if (!stall.by.empty()) annotate("by", stall.by);
        event_.number(event::type, event::instant);
        event_.number(event::track_uuid, number_of(stalled));
        event_.fixed64(event::terminating_flow_ids, number_of_flow(stall));
        write_event(out, event_, stall.at_ns, {});
    }

  private:
    /// Writes once a page, for its reader, what a number stands for.
    template <class Name>
    void intern(uint32_t list, uint64_t iid, const Name& name) {
        if (!named_.emplace(list, iid).second) return;
        ProtoMessage entry;
        entry.number(interned::iid, iid);
        entry.text(interned::name, name());
        interned_.message(list, entry);
    }

    void annotate(std::string_view name, std::string_view text) {
        annotation_.clear();
        annotation_.text(annotation::name, name);
        annotation_.text(annotation::string_value, text);
        event_.message(event::annotations, annotation_);
    }
    void annotate(std::string_view name, uint64_t number) {
        annotation_.clear();
        annotation_.text(annotation::name, name);
        annotation_.number(annotation::int_value, number);
        event_.message(event::annotations, annotation_);
    }

    void annotate(const SliceArgument& argument) {
        const auto column = static_cast<size_t>(argument.column);
        intern(interned::annotation_names, column + 1, [&] { return std::string(event_columns()[column].name); });
        annotation_.clear();
        annotation_.number(annotation::name_iid, column + 1);
        if (argument.is_text)
            annotation_.text(annotation::string_value, argument.text);
        else
            annotation_.number(annotation::int_value, static_cast<uint64_t>(argument.number));
        event_.message(event::annotations, annotation_);
    }

    void write_begin_and_end(std::string& out, ProtoMessage& event, uint64_t track, uint64_t start_ns, uint64_t end_ns,
                             std::string_view interned) {
        event.number(event::type, event::slice_begin);
        event.number(event::track_uuid, track);
        write_event(out, event, start_ns, interned);
        end_.clear();
        end_.number(event::type, event::slice_end);
        end_.number(event::track_uuid, track);
        write_event(out, end_, end_ns, {});
    }

    void write_event(std::string& out, const ProtoMessage& event, uint64_t at_ns, std::string_view interned) {
        packet_.clear();
        packet_.number(packet::timestamp, at_ns);
        if (!interned.empty()) packet_.text(packet::interned_data, interned);
        packet_.message(packet::track_event, event);
        write_packet(out, packet_, packet::needs_state);
    }

    void write_described(std::string& out, const ProtoMessage& description) {
        ProtoMessage fields;
        fields.message(packet::track_descriptor, description);
        write_packet(out, fields, packet::needs_state);
    }

    /// What the other clocks showed, of a single boot: another trace of that time can then be laid beside this one.
    void write_clocks(std::string& out) {
        ProtoMessage snapshot, fields;
        const auto add = [&](uint64_t id, uint64_t ns) {
            ProtoMessage clock;
            clock.number(clock_snapshot::clock_id, id);
            clock.number(clock_snapshot::timestamp, ns);
            snapshot.message(clock_snapshot::clocks, clock);
        };
        const auto& boots = context_.index.boots();
        const ClockTriple clock = boots.size() == 1 ? boots.front().window.clock : ClockTriple{};
        add(clock_snapshot::realtime, clock.realtime_ns != 0 ? clock.realtime_ns : context_.base_ns);
        if (clock.boottime_ns != 0 && clock.boottime_ns != clock.realtime_ns) {
            add(clock_snapshot::monotonic, clock.monotonic_ns);
            add(clock_snapshot::boottime, clock.boottime_ns);
        }
        snapshot.number(clock_snapshot::primary_trace_clock, clock_snapshot::realtime);
        fields.message(packet::clock_snapshot, snapshot);
        write_packet(out, fields, 0);
    }

    void write_packet(std::string& out, ProtoMessage& fields, uint64_t flags) {
        fields.number(packet::sequence_id, 1);
        if (flags != 0) fields.number(packet::sequence_flags, flags);
        framed_.clear();
        framed_.message(trace::packet, fields);
        out += framed_.bytes();
    }

    std::set<std::pair<uint32_t, uint64_t>> named_;
    // Kept for their memory.
    ProtoMessage interned_, event_, annotation_, end_, packet_, framed_;
};

}  // namespace

std::unique_ptr<PageWriter> make_perfetto_writer(const PageContext& context) {
    return std::make_unique<PerfettoWriter>(context);
}

}  // namespace ingero
