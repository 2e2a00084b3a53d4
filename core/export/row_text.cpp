// A line an event, with the columns of the SQL table `events`, in order of timestamp and id.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/export/json_text.h"
#include "core/export/page_writer.h"
#include "core/sql/catalogue.h"
#include "core/sql/events/event_row.h"
#include "core/wire/utf8.h"

namespace ingero {

namespace {

/// As csv_query() writes them: null is an empty field, an empty text is "".
struct CsvSink {
    std::string& out;

    // SQL has no unsigned numbers.
    void number(uint64_t value) { append_number(out, static_cast<int64_t>(value)); }
    void lasting_text(std::string_view text) {
        const std::string valid = to_valid_utf8(text);
        if (!valid.empty() && valid.find_first_of(",\"\r\n") == std::string::npos) {
            out += valid;
            return;
        }
        out += '"';
        for (const char c : valid) out.append(c == '"' ? 2 : 1, c);
        out += '"';
    }
    void passing_text(std::string_view text) { lasting_text(text); }
};

/// What is null is left out.
struct JsonSink {
    std::string& out;
    std::string_view name;

    void number(uint64_t value) {
        key();
        append_number(out, static_cast<int64_t>(value));
    }
    void lasting_text(std::string_view text) {
        key();
        append_json_text(out, text);
    }
    void passing_text(std::string_view text) { lasting_text(text); }

  private:
    void key() { out.append(out.back() == '{' ? "\"" : ",\"").append(name).append("\":"); }
};

/// Puts lines in order, and keeps their memory.
class LineWriter : public PageWriter {
  public:
    explicit LineWriter(const PageContext& context) : context_(context) {}

    Result<void> begin(std::string&) override { return {}; }

    Result<void> keep(EventCursor& rows) override {
        const auto id = rows.value(ColumnId::sequence);
        if (!id) return tl::unexpected(id.error());
        if (kept_ == lines_.size()) lines_.emplace_back();
        auto& [number, line] = lines_[kept_++];
        number = *id;
        line.clear();
        return write_line(rows, line);
    }

    void write_kept(std::string& out) override {
        const auto end = lines_.begin() + static_cast<std::ptrdiff_t>(kept_);
        std::sort(lines_.begin(), end, [](const auto& a, const auto& b) { return a.first < b.first; });
        for (auto line = lines_.begin(); line != end; ++line) out += line->second;
        kept_ = 0;
    }

    void end(std::string&, bool) override {}

  protected:
    virtual Result<void> write_line(EventCursor& rows, std::string& line) = 0;

    /// Calls before(column) and then gives each column to the sink.
    template <class Sink, class Before>
    Result<void> give_all(EventCursor& rows, Sink& sink, const Before& before) {
        EventRow row(context_.index, rows, last_, sink);
        for (size_t column = 0; column < event_columns().size(); ++column) {
            before(column);
            row.give(static_cast<EventColumn>(column));
        }
        if (row.error()) return tl::unexpected(*row.error());
        return {};
    }

    const PageContext context_;

  private:
    LastProcess last_;
    std::vector<std::pair<uint64_t, std::string>> lines_;
    size_t kept_ = 0;
};

class CsvWriter final : public LineWriter {
  public:
    using LineWriter::LineWriter;

    Result<void> begin(std::string& out) override {
        if (!context_.is_first) return {};
        for (const SqlColumnInfo& column : event_columns())
            out.append(&column == event_columns().data() ? "" : ",").append(column.name);
        out += "\r\n";
        return {};
    }

  protected:
    Result<void> write_line(EventCursor& rows, std::string& line) override {
        CsvSink sink{line};
        auto given = give_all(rows, sink, [&](size_t column) { line.append(column == 0 ? "" : ","); });
        line += "\r\n";
        return given;
    }
};

class JsonlWriter final : public LineWriter {
  public:
    using LineWriter::LineWriter;

  protected:
    Result<void> write_line(EventCursor& rows, std::string& line) override {
        line += '{';
        JsonSink sink{line, {}};
        auto given = give_all(rows, sink, [&](size_t column) { sink.name = event_columns()[column].name; });
        line += "}\n";
        return given;
    }
};

}  // namespace

std::unique_ptr<PageWriter> make_csv_writer(const PageContext& context) {
    return std::make_unique<CsvWriter>(context);
}

std::unique_ptr<PageWriter> make_jsonl_writer(const PageContext& context) {
    return std::make_unique<JsonlWriter>(context);
}

}  // namespace ingero
