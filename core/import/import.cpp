#include "core/import/import.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/import/importer.h"
#include "core/import/trace_copy.h"

namespace ingero {

namespace {

/// Removes a store that was made for nothing.
void remove_store(const std::string& directory) {
    for (const char* name : {"/data.mdb", "/lock.mdb", "/ingerod.lock"}) unlink((directory + name).c_str());
    rmdir(directory.c_str());
}

uint64_t file_bytes(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

Result<ImportState> state_of(const std::string& directory, const std::string& hash) {
    if (file_bytes(directory + "/data.mdb") == 0) return ImportState::absent;
    const auto reader = StoreReader::open(directory);
    if (!reader && reader.error().code == ErrorCode::not_found) return ImportState::absent;
    if (!reader) return tl::unexpected(reader.error());
    const auto snapshot = (*reader)->snapshot();
    if (!snapshot) return tl::unexpected(snapshot.error());
    return find_import((*snapshot)->sessions(), hash);
}

}  // namespace

ImportState find_import(const std::vector<Session>& sessions, const std::string& hash) {
    ImportState state = ImportState::absent;
    for (const Session& session : sessions) {
        if (!session.boot_id.starts_with(std::string(import_boot_prefix) + hash)) continue;
        if (session.id == hash && session.ended_cleanly) return ImportState::whole;
        state = ImportState::cut_off;
    }
    return state;
}

Result<ImportSummary> import_bytes(std::span<std::byte> bytes, const std::string& hash, const ImportOptions& options,
                                   const std::shared_ptr<ClockTriple>& clock,
                                   const std::function<Result<StoreWriter*>()>& open_store) {
    auto trace = TraceDatabase::open(bytes, options.time_limit);
    if (!trace) return tl::unexpected(trace.error());
    Importer importer(std::move(*trace), hash, options, clock);
    if (auto planned = importer.plan(); !planned) return tl::unexpected(planned.error());
    const auto store = open_store();
    if (!store) return tl::unexpected(store.error());
    if (auto written = importer.write(**store); !written) return tl::unexpected(written.error());
    return importer.take_summary();
}

Result<ImportSummary> import_trace(const std::string& path, const std::string& directory,
                                   const ImportOptions& options) {
    const bool is_new_directory = mkdir(directory.c_str(), 0700) == 0;
    if (!is_new_directory && errno != EEXIST)
        return fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::denied,
                    errno_message("cannot make the directory " + directory, errno));
    const bool is_new = is_new_directory || file_bytes(directory + "/data.mdb") == 0;
    std::unique_ptr<StoreWriter> writer;
    const auto run = [&]() -> Result<ImportSummary> {
        const auto copy = TraceCopy::make(path, directory);
        if (!copy) return tl::unexpected(copy.error());
        const std::string hash = copy->hash();
        const auto state = state_of(directory, hash);
        if (!state) return tl::unexpected(state.error());
        if (*state == ImportState::cut_off)
            return fail(ErrorCode::corrupt, "an earlier import of this trace into " + directory + " was interrupted",
                        "import it into a new store");
        if (*state == ImportState::whole) {
            ImportSummary summary;
            summary.already_there = true;
            return summary;
        }
        const auto clock = std::make_shared<ClockTriple>();
        StoreOptions store;
        // Nothing is to be let go: room for what is there, and for several times what comes.
        store.max_size_bytes = 2 * file_bytes(directory + "/data.mdb") + 6 * copy->bytes().size() + (16 << 20);
        store.clock = [clock] { return *clock; };
        return import_bytes(copy->bytes(), hash, options, clock, [&]() -> Result<StoreWriter*> {
            auto opened = StoreWriter::open(directory, store);
            if (!opened) return tl::unexpected(opened.error());
            writer = std::move(*opened);
            return writer.get();
        });
    };
    auto summary = run();
    if (!summary && writer && is_new) {
        writer.reset();
        remove_store(directory);
    }
    if (!summary && is_new_directory) rmdir(directory.c_str());
    return summary;
}

}  // namespace ingero
