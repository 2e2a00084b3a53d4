#include "core/store/rows/rows.h"

#include <concepts>

#include "core/store/rows/row_codec.h"

namespace ingero {

namespace {

using row_codec::RowReader;
using row_codec::RowWriter;

constexpr uint8_t row_version = 6;
constexpr size_t max_environment = 32;

template <class Codec, class Clock>
void clock_fields(Codec& codec, Clock& clock) {
    codec(clock.monotonic_ns);
    codec(clock.boottime_ns);
    codec(clock.realtime_ns);
}

constexpr auto pair_fields = [](auto& codec, auto& pair) {
    codec(pair.first);
    codec(pair.second);
};

template <class Codec, class Row>
void facts_fields(Codec& codec, Row& process) {
    auto& facts = process.facts;
    codec(facts.command);
    codec(facts.container);
    codec(facts.container_runtime);
    codec(facts.pod_uid);
    codec(facts.pod_name);
    codec(facts.pod_namespace);
    codec(facts.slurm_job);
    codec(facts.slurm_step);
    codec(facts.ecs_task);
    codec(facts.rank);
    codec(facts.local_rank);
    codec(facts.world_size);
    codec(facts.rank_source);
    codec(facts.cuda_visible_devices);
    codec(facts.nvidia_visible_devices);
    codec.list(facts.environment, max_environment, pair_fields);
    codec(process.cpus_allowed);
    codec(process.mems_allowed);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredProcess>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.process.key.pid);
    codec(row.process.key.start_ns);
    codec(row.process.uid);
    codec(row.process.parent_pid);
    codec(row.process.comm);
    codec(row.process.cgroup);
    codec(row.process.unit);
    codec(row.process.first_seen_ns);
    codec(row.process.exited_ns);
    codec(row.process.exit_code);
    if (codec.has(4)) facts_fields(codec, row.process);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredFunction>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.function.process.pid);
    codec(row.function.process.start_ns);
    codec(row.function.handle);
    codec(row.function.seen_ns);
    codec(row.function.name);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredCommunicator>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.communicator.process.pid);
    codec(row.communicator.process.start_ns);
    codec(row.communicator.id);
    codec(row.communicator.handle);
    codec(row.communicator.hash);
    codec(row.communicator.parent);
    codec(row.communicator.parent_hash);
    codec(row.communicator.seen_ns);
    codec(row.communicator.rank);
    codec(row.communicator.ranks);
    codec(row.communicator.color);
    codec(row.communicator.key);
    codec(row.communicator.split);
    codec(row.communicator.origin);
    codec.since(6, row.communicator.interrupted_ns);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredStack>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.stack.id);
    codec(row.stack.process.pid);
    codec(row.stack.process.start_ns);
    codec(row.stack.seen_ns);
    codec(row.stack.end);
    codec(row.stack.frames);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredFile>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.file.id);
    codec(row.file.path);
    codec(row.file.build_id);
    codec(row.file.state);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StoredSymbol>
void fields(Codec& codec, Row& row) {
    codec(row.boot_index);
    codec(row.symbol.file);
    codec(row.symbol.offset);
    codec(row.symbol.name);
    codec(row.symbol.demangled);
    codec(row.symbol.symbol_offset);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, GapRow>
void fields(Codec& codec, Row& row) {
    codec(row.process.pid);
    codec(row.process.start_ns);
    codec(row.uid);
    codec(row.from_ns);
    codec(row.to_ns);
    codec(row.reason);
    codec(row.subject);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, LossRow>
void fields(Codec& codec, Row& row) {
    codec(row.from_ns);
    codec(row.to_ns);
    codec(row.op);
    codec(row.lost_ring);
    codec(row.lost_frames);
    codec(row.lost_depth);
    codec(row.uncertain);
    codec.since(2, row.thinned);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, Session>
void fields(Codec& codec, Row& row) {
    codec(row.id);
    codec(row.boot_id);
    codec(row.node);
    codec(row.machine_id);
    codec(row.version);
    codec(row.kernel);
    codec(row.attach_method);
    codec(row.boot_index);
    clock_fields(codec, row.clock);
    clock_fields(codec, row.latest_clock);
    codec(row.first_covered_ns);
    codec(row.last_covered_ns);
    codec(row.ended_cleanly);
    codec.since(3, row.rolled_up_from_ns);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, SpanRow>
void fields(Codec& codec, Row& row) {
    codec(row.kind);
    codec(row.id);
    codec(row.start_ns);
    codec(row.end_ns);
    codec(row.first_token_ns);
    codec(row.scheduled_ns);
    codec(row.prompt_tokens);
    codec(row.output_tokens);
    codec(row.model);
    codec.list(row.labels, max_span_labels, pair_fields);
    codec(row.process.pid);
    codec(row.process.start_ns);
    codec(row.uid);
    codec(row.scope);
    codec(row.received_ns);
    codec.list(row.values, max_span_values, pair_fields);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, IncidentRow>
void fields(Codec& codec, Row& row) {
    codec(row.id);
    codec(row.event);
    codec(row.at_ns);
    codec(row.opened_ns);
    codec(row.kind);
    codec(row.severity);
    codec(row.verdict);
    codec(row.summary);
    codec(row.process.pid);
    codec(row.process.start_ns);
    codec(row.uid);
    codec(row.lost_ns);
    codec(row.explained_permille);
    codec.list(row.culprits, max_incident_culprits, [](auto& inner, auto& culprit) {
        inner(culprit.name);
        inner(culprit.pid);
        inner(culprit.ns);
    });
    codec.long_text(row.finding);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, StateRow>
void fields(Codec& codec, Row& row) {
    codec(row.time_ns);
    codec(row.source);
    codec.values_by_name(row.values);
    if (codec.has(4)) codec.list(row.texts, max_state_texts, pair_fields);
    if (codec.has(5)) codec.values_by_number(row.values);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, ClockRow>
void fields(Codec& codec, Row& row) {
    codec(row.session);
    clock_fields(codec, row.clock);
}

template <class Codec, class Row>
requires std::same_as<std::remove_const_t<Row>, RollupRow>
void fields(Codec& codec, Row& row) {
    codec(row.minute_ns);
    codec(row.op);
    codec(row.process.pid);
    codec(row.process.start_ns);
    codec(row.uid);
    codec(row.calls);
    codec(row.errors);
    codec(row.total_ns);
    codec(row.max_ns);
    codec(row.bytes);
    codec(row.on_cpu_ns);
    codec(row.runnable_ns);
    codec(row.blocked_ns);
    codec(row.lost);
    codec(row.thinned);
    codec(row.durations);
}

template <class Row>
std::string encode(const Row& row) {
    RowWriter writer;
    writer(row_version);
    fields(writer, row);
    return writer.take();
}

template <class Row>
std::optional<Row> decode(std::string_view content) {
    RowReader reader(content);
    Row row;
    fields(reader, row);
    if (reader.failed() || reader.version() == 0) return std::nullopt;
    if (reader.version() <= row_version && !reader.at_end()) return std::nullopt;
    return row;
}

}  // namespace

std::string_view to_string(GapReason reason) {
    switch (reason) {
        case GapReason::late_attach:
            return "late-attach";
        case GapReason::refused:
            return "refused";
        case GapReason::turned_off:
            return "turned-off";
        case GapReason::excluded:
            return "excluded";
        case GapReason::too_many:
            return "too-many";
        case GapReason::imported:
            return "imported";
        case GapReason::gave_way:
            return "gave-way";
        case GapReason::sliced:
            return "sliced";
        case GapReason::not_kept:
            break;
    }
    return "unknown";
}

std::string_view to_string(CommunicatorOrigin origin) {
    switch (origin) {
        case CommunicatorOrigin::found:
            return "found";
        case CommunicatorOrigin::init_rank:
            return "init-rank";
        case CommunicatorOrigin::init_all:
            return "init-all";
        case CommunicatorOrigin::split:
            return "split";
        case CommunicatorOrigin::not_kept:
            break;
    }
    return "unknown";
}

std::string encode_row(const StoredProcess& row) {
    return encode(row);
}
std::string encode_row(const StoredFunction& row) {
    return encode(row);
}
std::string encode_row(const StoredCommunicator& row) {
    return encode(row);
}
std::string encode_row(const GapRow& row) {
    return encode(row);
}
std::string encode_row(const StoredStack& row) {
    return encode(row);
}
std::string encode_row(const StoredFile& row) {
    return encode(row);
}
std::string encode_row(const StoredSymbol& row) {
    return encode(row);
}
std::string encode_row(const LossRow& row) {
    return encode(row);
}
std::string encode_row(const Session& row) {
    return encode(row);
}
std::string encode_row(const SpanRow& row) {
    return encode(row);
}
std::string encode_row(const IncidentRow& row) {
    return encode(row);
}
std::string encode_row(const StateRow& row) {
    return encode(row);
}
std::string encode_row(const ClockRow& row) {
    return encode(row);
}
std::string encode_row(const RollupRow& row) {
    return encode(row);
}
std::optional<StoredProcess> decode_process(std::string_view content) {
    return decode<StoredProcess>(content);
}
std::optional<StoredFunction> decode_function(std::string_view content) {
    return decode<StoredFunction>(content);
}
std::optional<StoredCommunicator> decode_communicator(std::string_view content) {
    return decode<StoredCommunicator>(content);
}
std::optional<GapRow> decode_gap(std::string_view content) {
    return decode<GapRow>(content);
}
std::optional<StoredStack> decode_stack(std::string_view content) {
    return decode<StoredStack>(content);
}
std::optional<StoredFile> decode_file(std::string_view content) {
    return decode<StoredFile>(content);
}
std::optional<StoredSymbol> decode_symbol(std::string_view content) {
    return decode<StoredSymbol>(content);
}
std::optional<LossRow> decode_loss(std::string_view content) {
    return decode<LossRow>(content);
}
std::optional<Session> decode_session(std::string_view content) {
    return decode<Session>(content);
}
std::optional<SpanRow> decode_span(std::string_view content) {
    return decode<SpanRow>(content);
}
std::optional<IncidentRow> decode_incident(std::string_view content) {
    return decode<IncidentRow>(content);
}
std::optional<StateRow> decode_state(std::string_view content) {
    return decode<StateRow>(content);
}
std::optional<StateHead> decode_state_head(std::string_view content) {
    RowReader reader(content);
    StateHead head{.time_ns = 0, .source = {}, .number = 0, .content = content};
    reader(head.time_ns);
    head.source = reader.text_view();
    if (reader.failed() || reader.version() == 0) return std::nullopt;
    return head;
}
std::optional<ClockRow> decode_clock(std::string_view content) {
    return decode<ClockRow>(content);
}
std::optional<RollupRow> decode_rollup(std::string_view content) {
    return decode<RollupRow>(content);
}

}  // namespace ingero
