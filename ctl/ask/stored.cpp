#include "ctl/ask/stored.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "core/import/import.h"
#include "core/model/unique_fd.h"
#include "core/wire/child_process.h"
#include "core/wire/worker_client.h"
#include "ctl/command.h"
#include "ctl/files/demos.h"

namespace ingero::ctl {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string find_worker() {
    return find_sibling("daemon/worker/ingero-worker", "lib/ingero/ingero-worker", INGERO_WORKER_INSTALL_PATH);
}

constexpr const char* what_to_name = "name the directory of a closed store, a SQLite trace, or demo:SCENARIO";

/// By errno.
tl::unexpected<Error> cannot_open(const std::string& path) {
    return fail(ErrorCode::not_found, errno_message("cannot open " + path, errno), what_to_name);
}

}  // namespace

// The lock is only looked at: a daemon that starts meanwhile is not to find it.
Result<void> check_closed(const std::string& directory) {
    const UniqueFd lock(open((directory + "/ingerod.lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!lock || flock(lock.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
    return fail(ErrorCode::busy, "a running ingerod uses the store " + directory,
                "ask that ingerod: leave --db out, and name its control socket with --socket");
}

TemporaryStore::TemporaryStore() {
    std::error_code error;
    path_ = (fs::temp_directory_path(error) / "ingeroctl-XXXXXX").string();
    if (!mkdtemp(path_.data())) path_.clear();
}

TemporaryStore::~TemporaryStore() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
}

struct StoredSource::Worker {
    OwnWorkerSession session;
};

Result<std::string> find_store(const std::string& path) {
    // A directory that a daemon was given by --directory has its store inside.
    for (const std::string& store : {path, path + "/store"}) {
        if (access((store + "/data.mdb").c_str(), F_OK) == 0) return store;
        if (errno == EACCES) return cannot_open(store);
    }
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return cannot_open(path);
    if (!S_ISDIR(status.st_mode))
        return fail(ErrorCode::not_found, path + " is not an event store",
                    "name its directory; of a SQLite trace 'ingeroctl import' makes a store");
    if (access(path.c_str(), X_OK) != 0) return cannot_open(path);
    return fail(ErrorCode::not_found, "there is no event store in " + path,
                "name the directory that holds data.mdb, a SQLite trace, or demo:SCENARIO");
}

Result<json> ask_closed_store(const std::string& directory, const std::string& method, int fd) {
    if (auto closed = check_closed(directory); !closed) return tl::unexpected(closed.error());
    // All of a large store is read.
    return ask_own_worker(
        {.program = find_worker(), .store_directory = directory, .timeout = std::chrono::hours(2), .fd = fd}, method,
        json::object());
}

StoredSource::StoredSource(StoredSource&&) noexcept = default;
StoredSource& StoredSource::operator=(StoredSource&&) noexcept = default;
StoredSource::~StoredSource() = default;

Result<StoredSource> StoredSource::open(const std::string& path, const std::string& node) {
    StoredSource source;
    if (const auto demo = demo_of(path)) {
        source.temporary_ = std::make_unique<TemporaryStore>();
        source.directory_ = source.temporary_->path();
        if (source.directory_.empty())
            return fail(ErrorCode::internal, errno_message("cannot create a temporary store", errno));
        if (auto unpacked = unpack_demo(*demo, source.directory_); !unpacked) return tl::unexpected(unpacked.error());
        return source;
    }
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return cannot_open(path);
    if (!S_ISDIR(status.st_mode)) {
        source.temporary_ = std::make_unique<TemporaryStore>();
        source.directory_ = source.temporary_->path();
        if (source.directory_.empty())
            return fail(ErrorCode::internal, errno_message("cannot create a temporary store", errno));
        ImportOptions options;
        options.node = node;
        if (const std::string stem = fs::path(path).stem().string(); !stem.empty()) options.fallback_node = stem;
        if (const auto imported = import_trace(path, source.directory_, options); !imported) {
            Error error = imported.error();
            if (error.code == ErrorCode::bad_request && error.hint.empty()) error.hint = what_to_name;
            return tl::unexpected(std::move(error));
        }
        return source;
    }
    auto store = find_store(path);
    if (!store) return tl::unexpected(store.error());
    source.directory_ = std::move(*store);
    if (auto closed = check_closed(source.directory_); !closed) return tl::unexpected(closed.error());
    return source;
}

Result<json> StoredSource::ask(const std::string& method, json params) {
    if (!worker_) {
        auto started =
            OwnWorkerSession::start({.program = find_worker(), .store_directory = directory_, .timeout = timeout_});
        if (!started) return tl::unexpected(started.error());
        worker_ = std::make_unique<Worker>(Worker{std::move(*started)});
    }
    params["stored"] = true;
    auto answer = worker_->session.ask(method, std::move(params));
    // The worker has it open: whatever ends this command from now on leaves nothing behind.
    if (answer) temporary_.reset();
    return answer;
}

Result<json> ask_stored(const std::string& path, const std::string& method, json params) {
    auto source = StoredSource::open(path);
    if (!source) return tl::unexpected(source.error());
    return source->ask(method, std::move(params));
}

}  // namespace ingero::ctl
