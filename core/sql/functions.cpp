#include "core/sql/functions.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/model/host_event.h"
#include "core/model/op.h"
#include "core/model/text/format.h"
#include "core/model/time.h"

namespace ingero {

namespace {

constexpr auto functions = std::to_array<SqlFunctionInfo>({
    {"percentile(x, p)", "the p-th percentile of x, p from 0 to 100: nearest rank, of all rows of a group"},
    {"time_bucket(t, 'width')", "the start of the interval that t lies in, such as '30s' or '5m'"},
    {"op_name(n)", "the name of an operation by its number, or by op_name(op_num, source_num)"},
    {"bytes_h(n)", "bytes with a unit: 1.2 GiB"},
    {"wait_detail(ret_code, arg1, arg2, stream)",
     "what a wait was about: lock, file, other end of a socket, disk request"},
    {"socket_peer(arg0, arg1, stream)", "the other end of the socket of a tcp event: 10.0.0.7:5000"},
    {"errno_name(n)", "ECONNRESET and so on"},
});

// Of SQLite 3.40 and the versions after it. Left out: what loads code, calls through a pointer or reveals one
// (fts3_tokenizer, load_extension, fts5), what belongs to tables that there are not (rtreenode, snippet), and what
// reports on the connection (changes, sqlite_compileoption_get) or writes a log.
constexpr auto functions_of_sqlite = std::to_array<std::string_view>({
    // text
    "char",
    "concat",
    "concat_ws",
    "format",
    "glob",
    "hex",
    "instr",
    "length",
    "like",
    "lower",
    "ltrim",
    "octet_length",
    "printf",
    "quote",
    "replace",
    "rtrim",
    "soundex",
    "substr",
    "substring",
    "trim",
    "unhex",
    "unicode",
    "upper",
    // values
    "abs",
    "coalesce",
    "if",
    "ifnull",
    "iif",
    "likelihood",
    "likely",
    "nullif",
    "random",
    "randomblob",
    "round",
    "sign",
    "sqlite_version",
    "typeof",
    "unlikely",
    "zeroblob",
    // mathematics
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "ceiling",
    "cos",
    "cosh",
    "degrees",
    "exp",
    "floor",
    "ln",
    "log",
    "log10",
    "log2",
    "mod",
    "pi",
    "pow",
    "power",
    "radians",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    // time
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "julianday",
    "strftime",
    "time",
    "timediff",
    "unixepoch",
    // aggregates and windows
    "avg",
    "count",
    "cume_dist",
    "dense_rank",
    "first_value",
    "group_concat",
    "lag",
    "last_value",
    "lead",
    "max",
    "min",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
    "string_agg",
    "sum",
    "total",
    // JSON
    "->",
    "->>",
    "json",
    "json_array",
    "json_array_length",
    "json_error_position",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_patch",
    "json_pretty",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_type",
    "json_valid",
});

/// Values of one group, held by SQLite's few bytes for it.
struct Percentile {
    std::vector<double> values;
    std::vector<int64_t> integers;  ///< as long as there is nothing else
    double percent = -1;
};

// 128 MiB.
constexpr uint64_t most_percentile_values = 16'000'000;

SqlContext& context_of(sqlite3_context* call) {
    return *static_cast<SqlContext*>(sqlite3_user_data(call));
}

void refuse(sqlite3_context* call, const char* why) {
    sqlite3_result_error(call, why, -1);
}

void add(Percentile& group, sqlite3_value* value) {
    if (sqlite3_value_numeric_type(value) == SQLITE_INTEGER && group.values.empty()) {
        group.integers.push_back(sqlite3_value_int64(value));
        return;
    }
    for (const int64_t integer : group.integers) group.values.push_back(static_cast<double>(integer));
    group.integers = {};
    group.values.push_back(sqlite3_value_double(value));
}

void percentile_step(sqlite3_context* call, int, sqlite3_value** arguments) {
    auto** place = static_cast<Percentile**>(sqlite3_aggregate_context(call, sizeof(Percentile*)));
    if (!place) return sqlite3_result_error_nomem(call);
    try {
        if (!*place) *place = std::make_unique<Percentile>().release();
        Percentile& group = **place;
        const int type = sqlite3_value_numeric_type(arguments[1]);
        const double percent = sqlite3_value_double(arguments[1]);
        if ((type != SQLITE_INTEGER && type != SQLITE_FLOAT) || percent < 0 || percent > 100)
            return refuse(call, "percentile(x, p): p is a number from 0 to 100");
        if (group.percent >= 0 && group.percent != percent)
            return refuse(call, "percentile(x, p): p is the same for all rows of a group");
        group.percent = percent;
        const int value_type = sqlite3_value_numeric_type(arguments[0]);
        if (value_type == SQLITE_NULL) return;
        if (value_type != SQLITE_INTEGER && value_type != SQLITE_FLOAT)
            return refuse(call, "percentile(x, p): x is not a number");
        if (++context_of(call).percentile_values > most_percentile_values)
            return refuse(call, "percentile(x, p): more than 16,000,000 values");
        add(group, arguments[0]);
    } catch (const std::bad_alloc&) {
        sqlite3_result_error_nomem(call);
    }
}

template <class Value>
Value nearest_rank(std::vector<Value>& values, double percent) {
    const auto count = static_cast<double>(values.size());
    const auto rank = static_cast<size_t>(std::clamp(std::ceil(percent * count / 100), 1.0, count));
    const auto nth = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
    std::nth_element(values.begin(), nth, values.end());
    return *nth;
}

void percentile_final(sqlite3_context* call) {
    auto** place = static_cast<Percentile**>(sqlite3_aggregate_context(call, 0));
    if (!place || !*place) return;
    const std::unique_ptr<Percentile> group(*place);
    context_of(call).percentile_values -=
        std::min<uint64_t>(context_of(call).percentile_values, group->values.size() + group->integers.size());
    if (!group->values.empty())
        sqlite3_result_double(call, nearest_rank(group->values, group->percent));
    else if (!group->integers.empty())
        sqlite3_result_int64(call, nearest_rank(group->integers, group->percent));
}

void free_width(void* width) {
    delete static_cast<int64_t*>(width);
}

void time_bucket(sqlite3_context* call, int, sqlite3_value** arguments) {
    if (sqlite3_value_type(arguments[0]) == SQLITE_NULL) return;
    const auto* kept = static_cast<int64_t*>(sqlite3_get_auxdata(call, 1));
    int64_t width = kept ? *kept : 0;
    if (!kept) {
        const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(arguments[1]));
        const auto parsed = parse_duration_ns(text ? text : "");
        if (!parsed || *parsed == 0 || *parsed > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
            return refuse(call, "time_bucket(t, width): a width is like '30s', '5m' or '1h'");
        width = static_cast<int64_t>(*parsed);
        if (auto* copy = new (std::nothrow) int64_t(width)) sqlite3_set_auxdata(call, 1, copy, free_width);
    }
    const int64_t time = sqlite3_value_int64(arguments[0]);
    const int64_t within = time % width;
    const int64_t start = time - within;
    const bool below = within < 0 && start >= std::numeric_limits<int64_t>::min() + width;
    sqlite3_result_int64(call, below ? start - width : start);
}

void op_name_of(sqlite3_context* call, int count, sqlite3_value** arguments) {
    for (int i = 0; i < count; ++i)
        if (sqlite3_value_type(arguments[i]) == SQLITE_NULL) return;
    const int64_t number = sqlite3_value_int64(arguments[0]);
    const int64_t source = count > 1 ? sqlite3_value_int64(arguments[1]) : number < 256 ? source_cuda : number >> 8;
    if (number < 0 || number > std::numeric_limits<OpId>::max() || source < 0 || source > 255) return;
    const std::string name = op_name(make_op(static_cast<uint8_t>(source), static_cast<uint8_t>(number & 0xff)));
    sqlite3_result_text(call, name.data(), static_cast<int>(name.size()), SQLITE_TRANSIENT);
}

void bytes_for_humans(sqlite3_context* call, int, sqlite3_value** arguments) {
    if (sqlite3_value_type(arguments[0]) == SQLITE_NULL) return;
    const double bytes = sqlite3_value_double(arguments[0]);
    constexpr double most = 1e18;
    const bool negative = bytes < 0;
    const auto size = static_cast<uint64_t>(std::min(std::abs(bytes), most));
    const std::string text = (negative ? "-" : "") + format_bytes(size);
    sqlite3_result_text(call, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

uint64_t word(sqlite3_value* argument) {
    return static_cast<uint64_t>(sqlite3_value_int64(argument));
}

void give_text(sqlite3_context* call, const std::string& text) {
    if (!text.empty()) sqlite3_result_text(call, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

void wait_detail_of(sqlite3_context* call, int, sqlite3_value** arguments) {
    Event wait;
    wait.op = op_wait;
    wait.return_code = static_cast<int32_t>(word(arguments[0]));
    wait.args = {0, word(arguments[1]), word(arguments[2])};
    wait.stream = word(arguments[3]);
    give_text(call, wait_detail_text(wait));
}

void socket_peer_of(sqlite3_context* call, int, sqlite3_value** arguments) {
    Event event;
    event.op = op_retransmit;
    event.args = {word(arguments[0]), word(arguments[1]), 0};
    event.stream = word(arguments[2]);
    give_text(call, peer_text(event));
}

void errno_name_of(sqlite3_context* call, int, sqlite3_value** arguments) {
    const int64_t number = sqlite3_value_int64(arguments[0]);
    if (number <= 0 || number > std::numeric_limits<int>::max()) return;
    if (const char* name = strerrorname_np(static_cast<int>(number)))
        sqlite3_result_text(call, name, -1, SQLITE_STATIC);
}

}  // namespace

std::span<const SqlFunctionInfo> sql_functions() {
    return functions;
}

bool may_be_called(std::string_view name) {
    const auto is_own = [name](const SqlFunctionInfo& own) { return own.call.substr(0, own.call.find('(')) == name; };
    return std::any_of(functions.begin(), functions.end(), is_own) ||
           std::find(functions_of_sqlite.begin(), functions_of_sqlite.end(), name) != functions_of_sqlite.end();
}

int register_functions(sqlite3* database, SqlContext& context) {
    constexpr int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    int code = sqlite3_create_function_v2(database, "percentile", 2, flags, &context, nullptr, percentile_step,
                                          percentile_final, nullptr);
    const auto scalar = [&](const char* name, int arguments, void (*call)(sqlite3_context*, int, sqlite3_value**)) {
        if (code == SQLITE_OK)
            code =
                sqlite3_create_function_v2(database, name, arguments, flags, &context, call, nullptr, nullptr, nullptr);
    };
    scalar("time_bucket", 2, time_bucket);
    scalar("op_name", 1, op_name_of);
    scalar("op_name", 2, op_name_of);
    scalar("bytes_h", 1, bytes_for_humans);
    scalar("wait_detail", 4, wait_detail_of);
    scalar("socket_peer", 3, socket_peer_of);
    scalar("errno_name", 1, errno_name_of);
    return code;
}

}  // namespace ingero
