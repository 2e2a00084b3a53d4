#include "daemon/worker/answers/store_answers.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/model/unique_fd.h"
#include "core/store/verify.h"
#include "core/wire/utf8.h"
#include "daemon/worker/protocol.h"

namespace ingero {

using nlohmann::json;

namespace {

json boot_json(const StoreDescription::Boot& boot) {
    const bool has_events = boot.events != 0 && boot.window.from_ns <= boot.window.to_ns;
    return {{"boot", boot.index},
            {"boot_id", to_valid_utf8(boot.boot_id)},
            {"node", to_valid_utf8(boot.node)},
            {"sessions", boot.sessions},
            {"events", boot.events},
            {"from_ns", has_events ? json(boot.window.from_ns) : json()},
            {"to_ns", has_events ? json(boot.window.to_ns) : json()}};
}

json session_json(const Session& session) {
    return {{"id", to_valid_utf8(session.id)},
            {"boot", session.boot_index},
            {"node", to_valid_utf8(session.node)},
            {"version", to_valid_utf8(session.version)},
            {"kernel", to_valid_utf8(session.kernel)},
            {"started_ns", session.clock.realtime_ns},
            {"latest_ns", session.latest_clock.realtime_ns},
            {"ended_cleanly", session.ended_cleanly}};
}

}  // namespace

Result<json> describe_answer(StoreReader& store) {
    const auto described = store.describe();
    if (!described) return tl::unexpected(described.error());
    const StoreDescription& all = *described;
    json tables = json::array(), blocks = json::array(), boots = json::array(), sessions = json::array();
    for (const auto& table : all.tables)
        tables.push_back({{"table", to_valid_utf8(table.name)}, {"rows", table.rows}, {"bytes", table.bytes}});
    for (const auto& kind : all.blocks)
        blocks.push_back({{"version", kind.version},
                          {"compressed", kind.compressed},
                          {"blocks", kind.blocks},
                          {"events", kind.events},
                          {"bytes", kind.bytes}});
    for (const auto& boot : all.boots) boots.push_back(boot_json(boot));
    for (const auto& session : all.sessions) sessions.push_back(session_json(session));
    return json{{"schema", "ingero/db-info/1"},
                {"layout", all.layout},
                {"bytes", all.bytes},
                {"live_bytes", all.live_bytes},
                {"cap_bytes", all.cap_bytes},
                {"events", all.events},
                {"unreadable_blocks", all.unreadable_blocks},
                {"tables", std::move(tables)},
                {"blocks", std::move(blocks)},
                {"boots", std::move(boots)},
                {"sessions", std::move(sessions)}};
}

Result<json> verify_answer(const Result<std::unique_ptr<StoreReader>>& store) {
    const auto verified = store ? (*store)->verify() : verification_of(store.error());
    if (!verified) return tl::unexpected(verified.error());
    json damages = json::array(), notes = json::array();
    for (const StoreDamage& damage : verified->damages)
        damages.push_back({{"table", damage.table.empty() ? json() : json(to_valid_utf8(damage.table))},
                           {"key", damage.key.empty() ? json() : json(to_valid_utf8(damage.key))},
                           {"what", to_valid_utf8(damage.what)},
                           {"events", damage.events}});
    for (const StoreNote& note : verified->notes) notes.push_back({{"what", note.what}, {"count", note.count}});
    return json{{"schema", "ingero/db-verify/1"}, {"clean", verified->is_clean()}, {"blocks", verified->blocks},
                {"events", verified->events},     {"rows", verified->rows},        {"damaged", verified->damaged},
                {"damages", std::move(damages)},  {"notes", std::move(notes)}};
}

Result<json> copy_answer(StoreReader& store, int fd) {
    if (fd < 0) return fail(ErrorCode::bad_request, "snapshot needs a file descriptor");
    // The only number that the sandbox lets a worker write to.
    const UniqueFd output(dup3(fd, worker_output_fd, O_CLOEXEC));
    if (!output) return fail(ErrorCode::internal, errno_message("the copy's file", errno));
    const auto bytes = store.copy_to(output.get());
    if (!bytes) return tl::unexpected(bytes.error());
    return json{{"bytes", *bytes}};
}

}  // namespace ingero
