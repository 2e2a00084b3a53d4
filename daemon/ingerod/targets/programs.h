// Programs with the CUDA runtime linked into them, found among all that are started on the host: by the functions in
// their own symbol tables. Loop thread only.
//
// Most programs are stripped, which their section headers show; of the others a worker reads the symbols, once a file.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/loop/event_loop.h"
#include "daemon/ingerod/workers/worker_pool.h"

namespace ingero {

/// By its path alone: what is mapped as code and is named like no shared library.
bool may_be_program(std::string_view path);

class Programs {
  public:
    /// Called with what look() was.
    struct Callbacks {
        /// The program of the process has the CUDA runtime inside.
        std::function<void(uint32_t pid, const Mapping& mapping, uint64_t time_ns)> on_found;
        /// Whether it has could not be found out, and why.
        std::function<void(uint32_t pid, const Mapping& mapping, uint64_t time_ns, const std::string& why)>
            on_unexamined;
    };
    Programs(const ProcFs& proc, WorkerPool& workers, Callbacks callbacks);
    ~Programs();

    /// A process maps a file that may be its program, since `time_ns` (CLOCK_MONOTONIC).
    void look(uint32_t pid, const Mapping& mapping, uint64_t time_ns);

  private:
    /// A file as it is: one that was rewritten or replaced is another.
    struct Key {
        FileId file;
        int64_t changed_s = 0;
        uint32_t changed_ns = 0;
        uint64_t size = 0;
        auto operator<=>(const Key&) const = default;
    };
    struct Sight {
        uint32_t pid;
        Mapping mapping;
        uint64_t time_ns;
    };
    enum class Verdict { asked, has_runtime, has_none, unreadable };
    struct Known {
        Verdict verdict = Verdict::asked;
        std::string why;           ///< it is unreadable
        bool asked_twice = false;  ///< since a worker failed
        std::vector<Sight> waiting;
    };
    struct Question {
        Key key;
        std::shared_ptr<UniqueFd> file;
    };

    void ask_next();
    void take_answer(Question question, const Result<nlohmann::json>& answer);
    void settle(const Key& key, Verdict verdict, const std::string& why = {});
    bool is_without(FileId file) const;
    void report(const std::vector<Sight>& sights, const std::string& why) const;

    const ProcFs& proc_;
    WorkerPool& workers_;
    Callbacks callbacks_;
    std::map<Key, Known> known_;
    std::deque<Question> questions_;
    bool asking_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ingero
