// What this process does to a store's data file, write by write and sync by sync, and what of it a power loss at any
// moment may leave. The calls are caught by symbols of the test's executable, which LMDB's calls resolve to as well.
//
// The model: what was written before an fsync or fdatasync that returned is there, and so is what went through a
// descriptor with O_DSYNC. Of all else any part may be there, in whole sectors, whatever the order in which it was
// written; a length that was not synced may be there or not.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ingero::test {

struct FileOperation {
    enum class Kind { write, resize, sync, name, sync_directory };
    Kind kind = Kind::write;
    uint64_t offset = 0;  ///< of a write; of resize: the new length
    std::string bytes{};
    bool durable = false;  ///< of a write: it has reached the disk when it returns
};

/// While one of these lives, what happens to `directory`/data.mdb, or to a file of that name below it, is noted. One
/// at a time.
class WriteLog {
  public:
    explicit WriteLog(std::string directory);
    ~WriteLog();
    WriteLog(const WriteLog&) = delete;
    WriteLog& operator=(const WriteLog&) = delete;

    size_t size() const { return operations_.size(); }
    std::vector<FileOperation> take() { return std::move(operations_); }

    // For the calls that are caught.
    void note(int fd, FileOperation operation);
    void note_rename(const char* to);

  private:
    std::string directory_;
    std::vector<FileOperation> operations_;
};

/// Syncs that are believed and do nothing, to see that a test notices.
enum class BrokenSync { none, data, meta };

/// Goes through a log from cut to cut. Cut n is power lost while operation n was under way: those before it returned.
class PowerLoss {
  public:
    PowerLoss(const std::vector<FileOperation>& operations, BrokenSync broken)
        : operations_(operations), broken_(broken) {}

    size_t cut() const { return cut_; }
    /// False after the last.
    bool next();
    /// Nothing that the disk is free to leave out can be left out.
    bool has_choice() const;

    enum class Kept { nothing, everything, only_the_last, at_random };
    struct Image {
        bool exists = true;  ///< whether the file has its name
        std::string bytes{};
    };
    Image image(Kept kept, std::mt19937_64& random) const;

  private:
    void settle();

    const std::vector<FileOperation>& operations_;
    BrokenSync broken_;
    size_t cut_ = 0;
    bool begun_ = false;
    std::string durable_;         ///< what every image has
    size_t first_unsettled_ = 0;  ///< operations before are in `durable_`
};

}  // namespace ingero::test
