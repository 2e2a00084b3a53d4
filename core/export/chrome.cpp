// The JSON of Chrome's tracing tools: complete events, by process and thread. Times are in us since the first event,
// since readers keep them in a double.
#include "core/export/json_text.h"
#include "core/export/slices.h"

namespace ingero {

namespace {

class ChromeWriter final : public SliceWriter {
  public:
    using SliceWriter::SliceWriter;

    void end(std::string& out, bool is_last) override {
        // What closes the list has no comma after it.
        if (is_last)
            out += R"({"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"not recorded"}}]})"
                   "\n";
    }

  protected:
    void write_head(std::string& out) override {
        if (!context_.is_first) return;
        out += R"({"displayTimeUnit":"ns","otherData":{"recorder":"ingero","start_realtime_ns":")";
        append_number(out, context_.base_ns);
        out += "\"},\"traceEvents\":[\n";
    }

    void write_gap(std::string& out, const Gap& gap, uint32_t lane) override {
        const uint64_t from = std::max(gap.from_ns, context_.base_ns);
        open(out, "X", gap.reason, 0, lane);
        times(out, from, std::max(gap.to_ns, from) - from);
        out += R"(,"cat":"gap"},)"
               "\n";
    }

    void describe_process(std::string& out, const Track& track) override {
        open(out, "M", "process_name", shown_pid(track.boot, track.process.pid), 0);
        out += R"(,"args":{"name":)";
        append_json_text(out, process_name(track));
        out += "}},\n";
    }

    void describe_track(std::string& out, const Track& track) override {
        if (track.is_thread()) return;
        open(out, "M", "thread_name", shown_pid(track.boot, track.process.pid), thread_of(track));
        out += R"(,"args":{"name":)";
        append_json_text(out, (track.is_of_process() ? "" : std::to_string(track.tid) + " ") + track_name(track));
        out += "}},\n";
    }

    void write_slice(std::string& out, const Track& track, const Slice& slice) override {
        open(out, "X", slice.name, shown_pid(track.boot, track.process.pid), thread_of(track));
        times(out, slice.start_ns, slice.end_ns - slice.start_ns);
        out += R"(,"cat":)";
        append_json_text(out, sql_source_name(op_source(slice.op)));
        out += R"(,"args":{)";
        for (const SliceArgument& argument : slice.arguments) {
            out += &argument == slice.arguments.data() ? "\"" : ",\"";
            out.append(event_columns()[static_cast<size_t>(argument.column)].name).append("\":");
            if (argument.is_text)
                append_json_text(out, argument.text);
            else
                append_number(out, argument.number);
        }
        out += "}},\n";
    }

    void write_part(std::string& out, const Track& track, const Slice& call, std::string_view name, uint64_t start_ns,
                    uint64_t length_ns) override {
        open(out, "X", name, shown_pid(track.boot, track.process.pid), thread_of(track));
        times(out, start_ns, length_ns);
        out += R"(,"cat":"off-cpu","args":{"id":)";
        append_number(out, call.id);
        out += "}},\n";
    }

    void write_history(std::string& out, const Track& track, const HistorySlice& slice) override {
        const uint64_t from = std::max(slice.start_ns, context_.base_ns);
        open(out, "X", slice.name, shown_pid(track.boot, track.process.pid), thread_of(track));
        times(out, from, std::max(slice.end_ns, from) - from);
        out += R"(,"cat":)";
        append_json_text(out, to_string(slice.kind));
        out += R"(,"args":{)";
        const auto begin_argument = [&](std::string_view name) {
            if (out.back() != '{') out += ',';
            append_json_text(out, name);
            out += ':';
        };
        for (const auto& [name, text] : slice.texts) {
            begin_argument(name);
            append_json_text(out, text);
        }
        for (const auto& [name, number] : slice.numbers) {
            begin_argument(name);
            append_number(out, number);
        }
        out += "}},\n";
    }

  private:
    static void open(std::string& out, std::string_view phase, std::string_view name, int64_t pid, int64_t tid) {
        out.append(R"({"ph":")").append(phase).append(R"(","name":)");
        append_json_text(out, name);
        out += R"(,"pid":)";
        append_number(out, pid);
        out += R"(,"tid":)";
        append_number(out, tid);
    }

    static void microseconds(std::string& out, uint64_t ns) {
        append_number(out, ns / 1000);
        const std::string digits = std::to_string(1000 + ns % 1000);
        out.append(".").append(digits, 1);
    }

    void times(std::string& out, uint64_t start_ns, uint64_t length_ns) const {
        out += R"(,"ts":)";
        microseconds(out, start_ns - std::min(start_ns, context_.base_ns));
        out += R"(,"dur":)";
        microseconds(out, length_ns);
    }

    /// A further track of a thread is a thread of its own here, with a number that no thread has.
    int64_t thread_of(const Track& track) const {
        if (track.is_thread()) return shown_pid(track.boot, track.tid);
        constexpr int64_t beyond = int64_t{1} << 30;
        return beyond | static_cast<int64_t>(number_of(track) % beyond);
    }
};

}  // namespace

std::unique_ptr<PageWriter> make_chrome_writer(const PageContext& context) {
    return std::make_unique<ChromeWriter>(context);
}

}  // namespace ingero
