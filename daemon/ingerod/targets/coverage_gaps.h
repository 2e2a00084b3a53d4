// What is not recorded of single processes, and since when: open gaps, stored as they open and close. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/store/store.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/limits/shares.h"
#include "daemon/ingerod/limits/uid_owners.h"

namespace ingero {

/// A process has one gap a reason and file; a gap of all processes has pid 0.
struct GapId {
    ProcessKey process;
    GapReason reason = GapReason::late_attach;
    FileId file;  ///< the library; where there is none, whatever distinguishes two gaps
    auto operator<=>(const GapId&) const = default;
};

class CoverageGaps {
  public:
    /// `put` gets each row to be stored: once as a gap opens, with to_ns 0, and once as it closes. `owners` must
    /// outlive it.
    explicit CoverageGaps(std::function<void(GapRow)> put, const UidOwners* owners = nullptr)
        : put_(std::move(put)), owners_(owners) {}

    /// Nothing where it is open already. `subject` is bounded and made valid UTF-8. A user who opens gaps faster than
    /// max_rows_a_uid and rows_a_second allow has them summed in one of any process of theirs. A process with
    /// max_open_a_process has the rest counted in one gap, which lasts as long as the process.
    void open(const GapId& id, uint32_t uid, uint64_t from_ns, const std::string& subject, bool of_root_too = false);
    void close(const GapId& id, uint64_t to_ns);
    /// All gaps of the process.
    void end_process(const ProcessKey& process, uint64_t to_ns);
    /// All gaps of the file for this reason. `then` is called with each, and may open others.
    void close_file(FileId file, GapReason reason, uint64_t to_ns,
                    const std::function<void(const ProcessKey&, uint32_t uid)>& then = {});
    void close_all(uint64_t to_ns);

    static constexpr uint64_t max_rows_a_uid = 4'096;  ///< at once
    static constexpr uint64_t rows_a_second = 4;       ///< and from then on
    static constexpr size_t max_open_a_process = 64;

  private:
    struct Open {
        GapRow row;
        bool stored = true;  ///< false: in a sum only
    };
    /// Gaps of one user that are summed: open while one of them is.
    struct Summed {
        GapRow row;
        size_t open = 0;
    };
    /// Gaps of one process that are counted only.
    struct Rest {
        Open gap;
        uint64_t count = 0;
    };
    using Gaps = std::map<GapId, Open>;

    Gaps::iterator close(Gaps::iterator gap, uint64_t to_ns);
    void end(Open& gap, uint64_t to_ns);
    void store_or_sum(Open& gap, bool of_root_too);
    bool has_most(const ProcessKey& process) const;
    void count(const GapId& id, uint32_t uid, uint64_t from_ns, bool of_root_too);
    void end_rest(std::map<ProcessKey, Rest>::iterator rest, uint64_t to_ns);
    uint64_t free_from_ns(const GapId& id, uint64_t from_ns) const;
    void sum(uint32_t uid, uint64_t from_ns);

    std::function<void(GapRow)> put_;
    const UidOwners* owners_;  ///< null: each uid is a user
    Gaps open_;
    std::map<ProcessKey, Rest> rest_;
    RateShares rates_{max_rows_a_uid, 1'000'000'000 / rows_a_second};
    std::map<uint32_t, Summed> summed_;  ///< by uid
};

}  // namespace ingero
