#include <algorithm>
#include <map>

#include "core/store/block/block_layout.h"
#include "core/store/block/block_view.h"
#include "core/store/file/environment.h"
#include "core/store/file/tables.h"
#include "core/store/rows/rows.h"
#include "core/store/verify.h"

namespace ingero {

namespace {

int describe_tables(const Environment& environment, MDB_txn* transaction, StoreDescription& ret_description) {
    MDB_dbi main = 0;
    if (const int rc = mdb_dbi_open(transaction, nullptr, 0, &main)) return rc;
    return for_each_row(transaction, main, {}, [&](auto key, auto) {
        MDB_dbi table = 0;
        MDB_stat stat{};
        const std::string name(key);
        if (mdb_dbi_open(transaction, name.c_str(), 0, &table) != 0 || mdb_stat(transaction, table, &stat) != 0)
            return true;
        const uint64_t pages = stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
        ret_description.tables.push_back({name, stat.ms_entries, pages * environment.page_bytes()});
        return true;
    });
}

struct Extent {
    uint64_t events = 0;
    Window window{UINT64_MAX, 0};
};

}  // namespace

Result<StoreDescription> describe_store(const Environment& environment, MDB_txn* transaction, uint64_t layout) {
    StoreDescription description;
    description.layout = layout;
    description.bytes = environment.used_file_bytes();
    description.live_bytes = environment.live_bytes(transaction);
    description.cap_bytes = environment.map_bytes();
    const auto sessions = read_sessions(environment, transaction);
    if (!sessions) return tl::unexpected(sessions.error());

    std::map<std::pair<uint16_t, bool>, StoreDescription::BlockKind> kinds;
    std::map<uint32_t, Extent> extents;
    int rc = describe_tables(environment, transaction, description);
    BlockView view;
    if (rc == 0)
        rc = for_each_row(transaction, environment.tables().events, {}, [&](auto, auto value) {
            const auto raw = layout::read_header(value);
            if (!raw || !view.open(value)) {
                ++description.unreadable_blocks;
                return true;
            }
            const BlockHeader& header = view.header();
            auto& kind = kinds[{raw->version, view.is_compressed()}];
            kind.version = raw->version;
            kind.compressed = view.is_compressed();
            ++kind.blocks;
            kind.events += header.rows;
            kind.bytes += value.size();
            Extent& extent = extents[header.boot_index];
            extent.events += header.rows;
            extent.window.from_ns = std::min(extent.window.from_ns, header.first_start_ns);
            extent.window.to_ns = std::max(extent.window.to_ns, header.max_end_ns);
            description.events += header.rows;
            return true;
        });
    if (rc != 0) return tl::unexpected(lmdb_error("cannot read the event store", rc));
    for (const auto& [which, kind] : kinds) description.blocks.push_back(kind);

    std::map<uint32_t, StoreDescription::Boot> boots;
    for (const auto& [number, session] : *sessions) {
        auto& boot = boots[session.boot_index];
        boot.boot_id = session.boot_id;
        boot.node = session.node;
        ++boot.sessions;
        const auto extent = extents.find(session.boot_index);
        if (extent != extents.end())
            boot.window = {session.latest_clock.to_realtime(extent->second.window.from_ns),
                           session.latest_clock.to_realtime(extent->second.window.to_ns)};
        description.sessions.push_back(session);
    }
    for (const auto& [index, extent] : extents) boots[index].events = extent.events;
    for (auto& [index, boot] : boots) {
        boot.index = index;
        description.boots.push_back(std::move(boot));
    }
    return description;
}

}  // namespace ingero
