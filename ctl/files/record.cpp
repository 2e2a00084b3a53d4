#include "ctl/files/record.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "core/model/text/format.h"
#include "core/query/sources/recording.h"
#include "core/store/rows/batch_stream.h"
#include "core/wire/utf8.h"
#include "ctl/files/footprint.h"
#include "ctl/help.h"
#include "ctl/live/interrupts.h"
#include "ctl/source.h"

namespace ingero::ctl {

using nlohmann::json;

namespace {

constexpr uint64_t page_every_ns = 500'000'000;

struct RecordCommand {
    uint32_t pid = 0;
    std::string unit;
    std::string duration;
    std::string since;
    std::string output;
    bool footprint = false;
    std::vector<std::string> command;  ///< to be run, and recorded
};

std::string random_id() {
    unsigned char bytes[16] = {};
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return {};
    std::string id;
    constexpr char digits[] = "0123456789abcdef";
    for (const unsigned char byte : bytes) id.append({digits[byte >> 4], digits[byte & 15]});
    return id;
}

/// The store that is written. One that was made for nothing is removed.
class Recording {
  public:
    Recording(Source& source, json params, std::string directory)
        : source_(source), params_(std::move(params)), directory_(std::move(directory)) {}
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording();

    Result<void> make_directory();
    /// All that there is by now.
    Result<void> copy();
    /// What came late: the names of places and of kernels, and spans.
    Result<void> finish();
    bool has_ended() const { return has_ended_; }
    json summary() const;

  private:
    Result<json> ask(json more, SessionBatch& ret_rows);
    Result<bool> copy_page();
    Result<void> begin(const SessionBatch& first, uint64_t start_ns);
    Result<void> add_stacks(const std::vector<uint32_t>& ids, Batch& batch);
    void keep_new_losses(std::vector<LossRow>& losses);

    Source& source_;
    const json params_;
    std::string directory_;
    bool made_directory_ = false;
    std::unique_ptr<StoreWriter> writer_;
    ClockTriple clock_;
    Session session_;
    uint64_t after_ = 0;
    uint64_t covered_ns_ = 0;
    bool has_ended_ = false;
    std::set<uint32_t> stacks_;
    std::map<std::tuple<uint64_t, uint64_t, OpId>, LossRow> losses_;  ///< as they are written
    std::set<ProcessKey> processes_;
    uint64_t events_ = 0;
};

Recording::~Recording() {
    if (writer_) return;  // it stays, and says that it did not end cleanly
    if (session_.id.empty() && made_directory_) {
        for (const char* name : {"/data.mdb", "/lock.mdb", "/ingerod.lock"}) unlink((directory_ + name).c_str());
        rmdir(directory_.c_str());
    }
}

Result<void> Recording::make_directory() {
    made_directory_ = mkdir(directory_.c_str(), 0700) == 0;
    if (!made_directory_ && errno != EEXIST)
        return fail(ErrorCode::denied, errno_message("cannot create " + directory_, errno));
    if (access((directory_ + "/data.mdb").c_str(), F_OK) == 0)
        return fail(ErrorCode::bad_request, "there is a store in " + directory_ + " already", "name a new directory");
    return {};
}

Result<json> Recording::ask(json more, SessionBatch& ret_rows) {
    json params = params_;
    params.update(more);
    auto answer = source_.ask("record", std::move(params));
    if (!answer) return answer;
    const auto parts = answer->find("parts");
    if (parts == answer->end() || !parts->is_array()) return fail(ErrorCode::internal, "the answer has no parts");
    std::string bytes;
    for (const json& part : *parts) {
        if (!part.is_binary()) return fail(ErrorCode::internal, "a part of the answer is not binary");
        bytes.append(part.get_binary().begin(), part.get_binary().end());
    }
    auto rows = decode_batch(bytes);
    if (!rows) return tl::unexpected(rows.error());
    ret_rows = std::move(*rows);
    return answer;
}

Result<void> Recording::begin(const SessionBatch& first, uint64_t start_ns) {
    StoreOptions options;
    options.clock = [this] { return clock_; };
    auto opened = StoreWriter::open(directory_, options);
    if (!opened) return tl::unexpected(opened.error());
    writer_ = std::move(*opened);
    session_ = first.session;
    session_.id = random_id();
    const ClockTriple& clock = first.session.latest_clock;
    const uint64_t later_ns = start_ns - clock.monotonic_ns;  // or earlier: it wraps
    session_.clock = {start_ns, clock.boottime_ns + later_ns, clock.realtime_ns + later_ns};
    session_.first_covered_ns = start_ns;
    session_.last_covered_ns = start_ns;
    session_.rolled_up_from_ns = 0;
    return writer_->begin_session(session_);
}

/// A row of the daemon's may have grown since: only by how much is added.
void Recording::keep_new_losses(std::vector<LossRow>& losses) {
    for (LossRow& row : losses) {
        LossRow& known = losses_[{row.from_ns, row.to_ns, row.op}];
        const LossRow all = row;
        row.lost_ring -= known.lost_ring;
        row.lost_frames -= known.lost_frames;
        row.lost_depth -= known.lost_depth;
        row.uncertain -= known.uncertain;
        row.thinned -= known.thinned;
        known = all;
    }
    std::erase_if(losses, [](const LossRow& row) { return row.is_empty(); });
}

Result<void> Recording::add_stacks(const std::vector<uint32_t>& ids, Batch& batch) {
    for (size_t at = 0; at < ids.size(); at += most_recorded_stacks) {
        const size_t count = std::min(most_recorded_stacks, ids.size() - at);
        const auto first = ids.begin() + static_cast<std::ptrdiff_t>(at);
        SessionBatch rows;
        auto answer = ask({{"stacks", std::vector<uint32_t>(first, first + static_cast<std::ptrdiff_t>(count))}}, rows);
        if (!answer) return tl::unexpected(answer.error());
        std::move(rows.batch.stacks.begin(), rows.batch.stacks.end(), std::back_inserter(batch.stacks));
        std::move(rows.batch.files.begin(), rows.batch.files.end(), std::back_inserter(batch.files));
        std::move(rows.batch.symbols.begin(), rows.batch.symbols.end(), std::back_inserter(batch.symbols));
    }
    return {};
}

/// Whether there are more.
Result<bool> Recording::copy_page() {
    SessionBatch rows;
    const auto answer = ask({{"after", after_}, {"after_ns", covered_ns_}}, rows);
    if (!answer) return tl::unexpected(answer.error());
    if (!writer_) {
        if (rows.batch.processes.empty())
            return fail(ErrorCode::not_found,
                        "no traced process in " + params_.value("unit", "") + " among those that you may see",
                        "'ingeroctl processes' lists them with their units");
        if (auto begun = begin(rows, answer->value("start_ns", uint64_t{0})); !begun)
            return tl::unexpected(begun.error());
    }
    if (rows.session.boot_id != session_.boot_id || rows.session.clock.monotonic_ns > session_.clock.monotonic_ns)
        return fail(ErrorCode::not_found, "the recording ended early: ingerod was restarted",
                    "the store holds what was recorded before; start 'ingeroctl record' again");
    clock_ = rows.session.latest_clock;
    after_ = answer->value("after", uint64_t{0});
    const bool more = answer->value("more", false);
    has_ended_ = answer->value("ended", false);
    Batch& batch = rows.batch;
    std::vector<uint32_t> new_stacks;
    for (const Event& event : batch.events)
        if (event.stack != 0 && stacks_.insert(event.stack).second) new_stacks.push_back(event.stack);
    if (auto added = add_stacks(new_stacks, batch); !added) return tl::unexpected(added.error());
    keep_new_losses(batch.losses);
    // Until the last page of them there are calls that are not there yet.
    if (!more) batch.covered_until_ns = covered_ns_ = rows.session.last_covered_ns;
    for (const Process& process : batch.processes) processes_.insert(process.key);
    events_ += batch.events.size();
    if (auto committed = writer_->commit(batch); !committed) return tl::unexpected(committed.error());
    return more;
}

Result<void> Recording::copy() {
    for (;;) {
        const auto more = copy_page();
        if (!more) return tl::unexpected(more.error());
        if (!*more) return {};
    }
}

Result<void> Recording::finish() {
    SessionBatch rows;
    if (const auto answer = ask({{"rest", true}}, rows); !answer) return tl::unexpected(answer.error());
    // With the places whose names were looked up since.
    if (auto added = add_stacks({stacks_.begin(), stacks_.end()}, rows.batch); !added) return added;
    if (auto committed = writer_->commit(rows.batch); !committed) return committed;
    auto ended = writer_->end_session();
    if (ended) writer_.reset();
    return ended;
}

json Recording::summary() const {
    const auto wall = [&](uint64_t ns) { return clock_.to_realtime(ns); };
    return {{"schema", "ingero/record/1"},
            {"store", to_valid_utf8(directory_)},
            {"node", to_valid_utf8(session_.node)},
            {"from_ns", wall(session_.first_covered_ns)},
            {"to_ns", wall(std::max(covered_ns_, session_.first_covered_ns))},
            {"events", events_},
            {"processes", processes_.size()},
            {"stacks", stacks_.size()}};
}

std::string text_record(const json& answer, const TextStyle&) {
    return escape_text(answer["node"].get<std::string>()) + ": " +
           format_count(answer["events"].get<uint64_t>(), "event", "events") + " of " +
           format_count(answer["processes"].get<uint64_t>(), "process", "processes") + ", " +
           format_time(answer["from_ns"]) + " to " + format_time(answer["to_ns"]) + ", in " +
           escape_text(answer["store"].get<std::string>()) + "\n";
}

/// Up to the end that comes first; which.
Result<std::string> copy_until(Recording& recording, std::optional<uint64_t> duration_ns,
                               const Interrupts& interrupts) {
    const uint64_t begin_ns = monotonic_now_ns();
    for (std::string end;;) {
        // What ends it is looked at before the page: the last one has all that was until then.
        const uint64_t passed_ns = monotonic_now_ns() - begin_ns;
        if (end.empty() && duration_ns && passed_ns >= *duration_ns) end = "duration";
        if (auto copied = recording.copy(); !copied) return tl::unexpected(copied.error());
        if (!end.empty()) return end;
        if (recording.has_ended()) return std::string("exit");
        const uint64_t left_ns = duration_ns ? *duration_ns - std::min(passed_ns, *duration_ns) : page_every_ns;
        if (interrupts.wait(std::min(left_ns, page_every_ns))) end = "interrupt";
    }
}

int run(const Options& options, const RecordCommand& command) {
    const auto wrong = [](const char* what, const char* hint) {
        return usage_error("record", {ErrorCode::bad_request, what, hint});
    };
    std::optional<uint64_t> duration_ns;
    if (!command.duration.empty()) {
        const auto parsed = parse_duration_ns(command.duration);
        if (!parsed) return wrong(("--duration: " + parsed.error().message).c_str(), "such as 30s or 5m");
        duration_ns = *parsed;
    }
    if (command.footprint) {
        if ((command.pid != 0) == !command.command.empty() || !command.since.empty() || !command.unit.empty())
            return wrong("--footprint takes --pid or a command, --duration and --output",
                         "such as: ingeroctl record --footprint --pid 1234 --duration 30s");
        return record_footprint(
            options,
            {.pid = command.pid, .command = command.command, .duration_ns = duration_ns, .output = command.output});
    }
    if (!command.command.empty()) return wrong("a command needs --footprint", "see 'ingeroctl record --help'");
    if ((command.pid != 0) == !command.unit.empty())
        return wrong("name either --pid or --unit", "such as: ingeroctl record --pid 1234 --duration 30s -o recording");
    if (command.output.empty())
        return wrong("name a directory with --output (only --footprint needs none)",
                     "such as: ingeroctl record --pid 1234 --duration 30s -o recording");
    uint64_t since_ns = 0;
    if (!command.since.empty()) {
        const auto parsed = parse_ago_ns(command.since);
        if (!parsed) return wrong(("--since: " + parsed.error().message).c_str(), "such as 30s or 5m");
        since_ns = *parsed;
    }
    int exit_code = exit_done;
    const auto source = open_source(options, "record", exit_code);
    if (!source) return exit_code;
    const uint64_t now_ns = ClockTriple::now().realtime_ns;
    json params = {{"start_ns", now_ns - std::min(now_ns, since_ns)}};
    if (command.pid != 0)
        params["pid"] = command.pid;
    else
        params["unit"] = command.unit;
    const Interrupts interrupts;
    Recording recording(*source, std::move(params), command.output);
    if (auto made = recording.make_directory(); !made) return report("record", made.error(), exit_failed);
    const auto end = copy_until(recording, duration_ns, interrupts);
    if (!end) return report("record", end.error(), exit_failed);
    if (auto finished = recording.finish(); !finished) return report("record", finished.error(), exit_failed);
    json summary = recording.summary();
    summary["ended"] = *end;
    return print(options, summary, text_record) ? exit_done : exit_failed;
}

}  // namespace

void add_record(CLI::App& app, Command& command) {
    const auto wanted = std::make_shared<RecordCommand>();
    CLI::App* subcommand = app.add_subcommand(
        "record",
        "Record a process or unit to a store of its own, or report the files, endpoints and system calls it uses");
    subcommand->add_option("-p,--pid", wanted->pid, "This process")->type_name("PID")->check(process_number());
    subcommand->add_option("--unit", wanted->unit, "All processes of this systemd unit")->type_name("UNIT");
    subcommand
        ->add_option("--duration", wanted->duration, "End after this time (default: when the process ends, or at ^C)")
        ->type_name("DURATION");
    subcommand->add_option("--since", wanted->since, "Begin this long ago (default: now)")->type_name("DURATION");
    subcommand->add_option("-o,--output", wanted->output, "The directory for the new store; with --footprint: a file")
        ->type_name("STORE");
    subcommand->add_flag(
        "--footprint", wanted->footprint,
        "In place of a store: report the system calls, files, endpoints, programs and libraries of the "
        "process, or of a command to run, and of all that it starts; it need not use CUDA");
    subcommand->add_option("command", wanted->command, "With --footprint: a command to run, after --")
        ->type_name("COMMAND");
    add_examples(*subcommand, {{"Half a minute of one process, as a store of its own",
                                "ingeroctl record --pid 4711 --duration 30s -o recording"},
                               {"Ask what was recorded", "ingeroctl --db recording explain"},
                               {"Which files does a command open?", "ingeroctl record --footprint -- ls /etc"}});
    subcommand->callback(
        [&command, wanted] { command = [wanted](const Options& options) { return run(options, *wanted); }; });
}

}  // namespace ingero::ctl
