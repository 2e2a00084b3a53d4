// What --db names, kept open for more than one question.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/model/result.h"

namespace ingero::ctl {

/// Gone with its content when this ends. An empty path: it could not be made.
class TemporaryStore {
  public:
    TemporaryStore();
    TemporaryStore(const TemporaryStore&) = delete;
    TemporaryStore& operator=(const TemporaryStore&) = delete;
    ~TemporaryStore();
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

/// A closed store's directory, and what of it lasts as long as the command. One thread at a time.
class StoredSource {
  public:
    /// A store, or a SQLite trace, which is imported into a temporary one. `node`: of a trace whose rows name none;
    /// empty: its file's name. Errors: not_found, busy (a daemon is at work there), those of an import.
    static Result<StoredSource> open(const std::string& path, const std::string& node = {});
    StoredSource(StoredSource&&) noexcept;
    StoredSource& operator=(StoredSource&&) noexcept;
    ~StoredSource();

    /// Before the first question, for each of them; a minute where it is not said.
    void answer_within(std::chrono::milliseconds timeout) { timeout_ = timeout; }

    const std::string& directory() const { return directory_; }
    /// Asks a worker, which is started for the first question. Errors: those of a worker.
    Result<nlohmann::json> ask(const std::string& method, nlohmann::json params);

  private:
    StoredSource() = default;
    struct Worker;
    std::unique_ptr<TemporaryStore> temporary_;
    std::string directory_;
    std::chrono::milliseconds timeout_{60'000};
    std::unique_ptr<Worker> worker_;  // after the store: it ends first
};

/// A store that a daemon is at work in is that daemon's. Errors: busy.
Result<void> check_closed(const std::string& directory);

}  // namespace ingero::ctl
