#include "core/store/verify.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "core/store/block/block.h"
#include "core/store/block/block_view.h"
#include "core/store/file/environment.h"
#include "core/store/file/tables.h"
#include "core/store/rows/rows.h"
#include "core/store/sequence_runs.h"

namespace ingero {

namespace {

/// Kept of each kind of missing thing: beyond it the count is a lower bound.
constexpr size_t most_missing = 100'000;

/// Bytes of a key's fields, big-endian numbers all.
struct KeyForm {
    std::string_view table;
    std::vector<size_t> fields;
};

std::string describe_key(std::string_view table, std::string_view key) {
    static const std::array<KeyForm, 16> forms = {{{"events", {4, 8, 8}},
                                                   {"processes", {4, 8}},
                                                   {"losses", {4, 8, 8, 2}},
                                                   {"sessions", {4}},
                                                   {"gaps", {4, 8, 4, 8, 2}},
                                                   {"functions", {4, 8, 8}},
                                                   {"communicators", {4, 8, 8}},
                                                   {"stacks", {4}},
                                                   {"files", {4}},
                                                   {"symbols", {4, 8}},
                                                   {"spans", {4, 8, 8}},
                                                   {"incidents", {4, 8, 8}},
                                                   {"snapshots", {4, 8, 8}},
                                                   {"rollups", {4, 8, 2, 4, 8}},
                                                   {"clocks", {4, 8, 8}},
                                                   {"held", {4, 4, 8, 8}}}};
    const bool is_text = std::all_of(key.begin(), key.end(), [](char c) { return c >= ' ' && c <= '~'; });
    for (const KeyForm& form : forms) {
        size_t bytes = 0;
        for (const size_t field : form.fields) bytes += field;
        if (form.table != table || key.size() != bytes) continue;
        std::string text;
        size_t at = 0;
        for (const size_t field : form.fields) {
            uint64_t number = 0;
            for (size_t i = 0; i < field; ++i) number = number << 8 | static_cast<uint8_t>(key[at++]);
            text += (text.empty() ? "" : "/") + std::to_string(number);
        }
        return text;
    }
    if (is_text) return std::string(key);
    constexpr const char* digits = "0123456789abcdef";
    std::string text = "0x";
    for (const char c : key) {
        text += digits[static_cast<uint8_t>(c) >> 4];
        text += digits[static_cast<uint8_t>(c) & 15];
    }
    return text;
}

/// Names of the tables in the file, those of a newer layout too.
int table_names(MDB_txn* transaction, std::vector<std::string>& ret_names) {
    MDB_dbi main = 0;
    if (const int rc = mdb_dbi_open(transaction, nullptr, 0, &main)) return rc;
    return for_each_row(transaction, main, {}, [&](auto key, auto) {
        ret_names.emplace_back(key);
        return true;
    });
}

class Verifier {
  public:
    Verifier(const Environment& environment, MDB_txn* transaction)
        : environment_(environment), transaction_(transaction) {}

    Result<StoreVerification> run() {
        std::vector<std::string> names;
        int rc = table_names(transaction_, names);
        read_ids();
        for (size_t i = 0; rc == 0 && i < names.size(); ++i)
            if (names[i] != "events") rc = check_table(names[i]);
        if (rc == 0) rc = check_events();
        if (rc != 0) return tl::unexpected(lmdb_error("cannot read the event store", rc));
        note("stacks that events refer to are missing", missing_stacks_.size());
        note("processes that events refer to are missing", missing_processes_.size());
        note("files that stacks refer to are missing", missing_files_.size());
        note("boots of events have no session", bootless_.size());
        return std::move(result_);
    }

  private:
    using Judge = std::function<const char*(std::string_view key, std::string_view content)>;

    void damage(std::string_view table, std::string_view key, std::string what, uint64_t events = 0) {
        ++result_.damaged;
        if (result_.damages.size() < most_listed_damages)
            result_.damages.push_back(
                {std::string(table), key.empty() ? "" : describe_key(table, key), std::move(what), events});
    }
    void note(const char* what, uint64_t count) {
        if (count != 0) result_.notes.push_back({what, count});
    }

    std::optional<uint64_t> meta_number(std::string_view name) const {
        MDB_val key = to_value(name);
        MDB_val value{};
        if (mdb_get(transaction_, environment_.tables().meta, &key, &value) != 0) return std::nullopt;
        const auto content = unseal(name, to_text(value));
        return content ? decode_number(*content) : std::nullopt;
    }

    /// Rows refer to each other by ids, and no id is above what "meta" says.
    void read_ids() {
        const auto sequence = meta_number(last_sequence_key);
        if (!sequence) damage("meta", last_sequence_key, "it is missing or damaged");
        last_sequence_ = sequence.value_or(UINT64_MAX);
        last_stack_ = meta_number(last_stack_key).value_or(UINT64_MAX);
        last_file_ = meta_number(last_file_key).value_or(UINT64_MAX);
        if (const auto sessions = read_sessions(environment_, transaction_))
            for (const auto& [number, session] : *sessions) boots_.insert(session.boot_index);
        gather<uint32_t>(environment_.tables().stacks, decode_number_key, stacks_);
        gather<uint32_t>(environment_.tables().files, decode_number_key, files_);
        for_each_row(transaction_, environment_.tables().processes, {}, [&](auto, auto value) {
            if (value.size() < sizeof(uint64_t)) return true;
            if (const auto row = decode_process(value.substr(sizeof(uint64_t)))) processes_.insert(row->process.key);
            return true;
        });
    }

    template <class Id>
    void gather(MDB_dbi table, std::optional<Id> (*decode)(std::string_view), std::unordered_set<Id>& ret_ids) {
        for_each_row(transaction_, table, {}, [&](auto key, auto) {
            if (const auto id = decode(key)) ret_ids.insert(*id);
            return true;
        });
    }

    /// What is wrong with a row whose seal fits: nullptr where nothing is. A table that is not known has its seals.
    Judge judge_of(const std::string& table) {
        static constexpr const char* unreadable = "the row cannot be read";
        static constexpr const char* misplaced = "the row is stored under another's key";
        const auto keyed = [](auto decode, auto key_of) -> Judge {
            return [=](std::string_view key, std::string_view content) -> const char* {
                const auto row = decode(content);
                if (!row) return unreadable;
                return key_of(*row) == key ? nullptr : misplaced;
            };
        };
        if (table == "processes")
            return keyed(decode_process, [](const StoredProcess& row) { return encode_key(row.process.key); });
        if (table == "functions")
            return keyed(decode_function, [](const StoredFunction& row) {
                return encode_key(FunctionKey{row.function.process, row.function.handle});
            });
        if (table == "communicators")
            return keyed(decode_communicator, [](const StoredCommunicator& row) {
                return encode_key(CommunicatorKey{row.communicator.process, row.communicator.id});
            });
        if (table == "files") return keyed(decode_file, [](const StoredFile& row) { return encode_key(row.file.id); });
        if (table == "symbols")
            return keyed(decode_symbol, [](const StoredSymbol& row) {
                return encode_key(StackFrame{row.symbol.file, row.symbol.offset});
            });
        if (table == "stacks")
            return [this](std::string_view key, std::string_view content) { return judge_stack(key, content); };
        if (table == "sessions")
            return [](std::string_view key, std::string_view content) -> const char* {
                return decode_number_key(key) && decode_session(content) ? nullptr : unreadable;
            };
        if (table == "losses")
            return [](std::string_view key, std::string_view content) -> const char* {
                const auto fields = decode_loss_key(key);
                const auto row = decode_loss(content);
                if (!fields || !row) return unreadable;
                const LossKey own{fields->boot_index, row->from_ns, row->to_ns, row->op};
                return encode_key(own) == key ? nullptr : misplaced;
            };
        if (table == "gaps")
            return [](std::string_view key, std::string_view content) -> const char* {
                const auto fields = decode_gap_key(key);
                const auto row = decode_gap(content);
                if (!fields || !row) return unreadable;
                // A reason that a later version knows is read as another than its number.
                const GapKey own{fields->boot_index, row->from_ns, row->process, fields->reason};
                return encode_key(own) == key ? nullptr : misplaced;
            };
        if (table == "spans") return judge_of_history(decode_span, [](const SpanRow& row) { return row.start_ns; });
        if (table == "incidents")
            return judge_of_history(decode_incident, [](const IncidentRow& row) { return row.at_ns; });
        if (table == "snapshots")
            return judge_of_history(decode_state, [](const StateRow& row) { return row.time_ns; });
        if (table == "clocks")
            return [](std::string_view key, std::string_view content) -> const char* {
                return decode_history_key(key) && decode_clock(content) ? nullptr : unreadable;
            };
        if (table == "rollups")
            return [](std::string_view key, std::string_view content) -> const char* {
                const auto fields = decode_rollup_key(key);
                const auto row = decode_rollup(content);
                if (!fields || !row) return unreadable;
                const RollupKey own{fields->boot_index, row->minute_ns, row->op, row->process};
                return encode_key(own) == key ? nullptr : misplaced;
            };
        if (table == "held")
            return [](std::string_view key, std::string_view content) -> const char* {
                return decode_held_key(key) && decode_number(content) ? nullptr : unreadable;
            };
        if (table == "span_ids")
            return [](std::string_view key, std::string_view content) -> const char* {
                return decode_span_id_key(key) && content.empty() ? nullptr : unreadable;
            };
        return [](std::string_view, std::string_view) -> const char* { return nullptr; };
    }

    /// Of rows whose keys distinguish them by when they happened.
    template <class Row, class TimeOf>
    static Judge judge_of_history(std::optional<Row> (*decode)(std::string_view), TimeOf time_of) {
        return [=](std::string_view key, std::string_view content) -> const char* {
            const auto fields = decode_history_key(key);
            const auto row = decode(content);
            if (!fields || !row) return "the row cannot be read";
            return time_of(*row) == fields->time_ns ? nullptr : "the row is stored under another's key";
        };
    }

    const char* judge_stack(std::string_view key, std::string_view content) {
        const auto row = decode_stack(content);
        if (!row) return "the row cannot be read";
        if (encode_key(row->stack.id) != key) return "the row is stored under another's key";
        if (row->stack.id > last_stack_) return "its number is above the last one assigned";
        for (const StackFrame& frame : row->stack.frames) {
            if (frame.file > last_file_) return "it refers to a file above the last one assigned";
            if (frame.file != 0 && !files_.contains(frame.file)) miss(missing_files_, frame.file);
        }
        return nullptr;
    }

    template <class Set, class Id>
    static void miss(Set& missing, const Id& id) {
        if (missing.size() < most_missing) missing.insert(id);
    }

    int check_table(const std::string& name) {
        MDB_dbi table = 0;
        if (const int rc = mdb_dbi_open(transaction_, name.c_str(), 0, &table)) {
            damage(name, {}, mdb_strerror(rc));
            return 0;
        }
        const Judge judge = judge_of(name);
        return for_each_row(transaction_, table, {}, [&](auto key, auto value) {
            ++result_.rows;
            const auto content = unseal(key, value);
            const char* fault = content ? judge(key, *content) : "its checksum does not match";
            if (fault) damage(name, key, fault);
            return true;
        });
    }

    int check_events() {
        return for_each_row(transaction_, environment_.tables().events, {}, [&](auto key, auto value) {
            rows_.clear();
            const auto header = read_block_header(value);
            const uint64_t lost = header ? header->rows : 0;
            if (auto fault = check_block(key, value)) {
                damage("events", key, std::move(*fault), lost);
                return true;
            }
            ++result_.blocks;
            result_.events += rows_.size();
            return true;
        });
    }

    std::optional<std::string> check_block(std::string_view raw_key, std::string_view value) {
        const auto key = decode_event_key(raw_key);
        if (!key) return "the key is of impossible length";
        if (auto decoded = decode_block(value, rows_); !decoded) return decoded.error().message;
        const auto header = read_block_header(value);
        if (!header) return header.error().message;
        if (header->boot_index != key->boot_index || header->first_start_ns != key->first_start_ns ||
            header->min_sequence != key->first_sequence)
            return "the block is stored under another's key";
        if (header->max_sequence > last_sequence_) return "it has a sequence above the last one assigned";
        if (const auto twice = add_sequences()) return "sequence " + std::to_string(*twice) + " occurs twice";
        if (!boots_.contains(header->boot_index)) miss(bootless_, header->boot_index);
        return check_references();
    }

    /// A sequence that was there before.
    std::optional<uint64_t> add_sequences() {
        sequences_.clear();
        for (const Event& event : rows_) sequences_.push_back(event.sequence);
        std::sort(sequences_.begin(), sequences_.end());
        for (size_t from = 0; from < sequences_.size();) {
            size_t to = from + 1;
            while (to < sequences_.size() && sequences_[to] == sequences_[to - 1] + 1) ++to;
            if (!runs_.add(sequences_[from], sequences_[to - 1])) return sequences_[from];
            from = to;
        }
        return std::nullopt;
    }

    std::optional<std::string> check_references() {
        for (const Event& event : rows_) {
            if (event.stack > last_stack_) return "it refers to a stack above the last one assigned";
            if (event.stack != 0 && !stacks_.contains(event.stack)) miss(missing_stacks_, event.stack);
            const ProcessKey process{event.tgid, event.process_start_ns};
            if (process == last_process_) continue;
            last_process_ = process;
            if (!processes_.contains(process)) miss(missing_processes_, process);
        }
        return std::nullopt;
    }

    const Environment& environment_;
    MDB_txn* transaction_;
    StoreVerification result_;
    uint64_t last_sequence_ = 0, last_stack_ = 0, last_file_ = 0;
    std::set<uint32_t> boots_, bootless_;
    std::unordered_set<uint32_t> stacks_, files_, missing_stacks_, missing_files_;
    std::set<ProcessKey> processes_, missing_processes_;
    ProcessKey last_process_;
    SequenceRuns runs_;
    std::vector<Event> rows_;
    std::vector<uint64_t> sequences_;
};

}  // namespace

Result<StoreVerification> verify_store(const Environment& environment, MDB_txn* transaction) {
    return Verifier(environment, transaction).run();
}

Result<StoreVerification> verify_store(const std::string& directory) {
    const auto reader = StoreReader::open(directory);
    if (!reader) return verification_of(reader.error());
    return (*reader)->verify();
}

Result<StoreVerification> verification_of(const Error& error) {
    if (error.code != ErrorCode::corrupt) return tl::unexpected(error);
    StoreVerification result;
    result.damaged = 1;
    result.damages.push_back({.table = "", .key = "", .what = error.message});
    return result;
}

}  // namespace ingero
