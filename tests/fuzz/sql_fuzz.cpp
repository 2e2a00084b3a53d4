// Statements are foreign text: whatever they say, they are answered or refused, in time and within memory, and change
// nothing.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "core/sql/groups/grouped_statement.h"
#include "core/sql/sql.h"

namespace {

using namespace ingero;

void require(bool holds) {
    if (!holds) abort();
}

std::unique_ptr<StoreSnapshot> make_snapshot() {
    std::string directory = std::filesystem::temp_directory_path() / "ingero-sql-fuzz-XXXXXX";
    require(mkdtemp(directory.data()) != nullptr);
    auto writer = StoreWriter::open(directory, {});
    require(writer.has_value());
    Session session;
    session.node = "node-1";
    session.clock = {1, 1, 1'700'000'000'000'000'000};
    require((*writer)->begin_session(session).has_value());
    (*writer)->set_first_covered(1);
    Batch batch;
    for (uint64_t i = 1; i <= 500; ++i) {
        Event event;
        event.sequence = i;
        event.op = i % 3 ? 0x0103 : 0x0101;
        event.start_ns = i * 1'000;
        event.duration_ns = i % 7 * 100;
        event.tgid = 1 + static_cast<uint32_t>(i % 2);
        batch.events.push_back(event);
    }
    batch.covered_until_ns = 1'000'000;
    require((*writer)->commit(batch).has_value());
    auto reader = StoreReader::open(directory);
    require(reader.has_value());
    auto snapshot = (*reader)->snapshot();
    require(snapshot.has_value());
    std::filesystem::remove_all(directory);  // what is mapped stays
    return std::move(*snapshot);
}

nlohmann::json sorted(nlohmann::json rows) {
    std::sort(rows.begin(), rows.end());
    return rows;
}

/// And has one answer: rows that an order leaves equal may be any of them, and these words have another value each
/// time.
bool is_answered_by_groups(const std::string& sql) {
    std::string lower = sql;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const char* word : {"limit", "random", "current_", "now"})
        if (lower.find(word) != std::string::npos) return false;
    return grouped_statement(sql).has_value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const std::unique_ptr<StoreSnapshot> snapshot = make_snapshot();
    static const std::unique_ptr<SqlEngine> engine = std::move(SqlEngine::open().value());
    SqlQuery query;
    query.sql.assign(reinterpret_cast<const char*>(data), size);
    query.deadline = std::chrono::milliseconds(500);
    query.memory_bytes = 32 << 20;
    query.limit = 100;
    const auto answer = engine->run(*snapshot, query);
    if (answer) require(answer->rows.size() <= query.limit);
    if (answer && is_answered_by_groups(query.sql)) {
        // A statement with WITH is answered row by row.
        SqlQuery by_rows = query;
        by_rows.sql = "WITH unused AS (SELECT 1) " + query.sql;
        const auto other = engine->run(*snapshot, by_rows);
        if (other && !answer->truncated) require(sorted(answer->rows) == sorted(other->rows));
    }
    query.explain = true;
    (void)engine->run(*snapshot, query);
    query = {};
    query.sql = "SELECT COUNT(*) FROM events";
    const auto count = engine->run(*snapshot, query);
    require(count.has_value() && count->rows[0][0] == 500);
    return 0;
}
