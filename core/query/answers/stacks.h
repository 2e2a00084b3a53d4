// The native stacks that calls were made on, with what was spent there, over a window.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/stack.h"
#include "core/query/answers/stats.h"

namespace ingero {

/// What is distinguished besides the stacks themselves; the other two are summed.
enum class StacksBy { op, process, kernel };

struct StacksQuery {
    Filter filter;
    StacksBy by = StacksBy::op;
    std::string op;        ///< name; empty: all
    bool off_cpu = false;  ///< order by time off CPU in place of all time, and leave out stacks without any
    size_t limit = 0;      ///< stacks in the answer; 0: all
};

struct NamedFrame {
    std::string symbol;          ///< as the symbol table has it; empty where it is not known
    std::string demangled;       ///< empty where it is no C++ name
    uint64_t symbol_offset = 0;  ///< from the symbol's start
    std::string file;            ///< path
    std::string build_id;
    uint64_t file_offset = 0;  ///< an address where the state is anonymous
    FileState state = FileState::unread;

    /// What to call it: the demangled name, the symbol, or "file+0xoffset".
    std::string text() const;
};

struct StackStats {
    std::optional<OpId> op;
    std::optional<uint32_t> pid;
    std::optional<std::string> kernel;  ///< of a launch whose function has no known name empty
    uint64_t count = 0;                 ///< of calls, each by its weight, as are the times
    uint64_t total_ns = 0;
    uint64_t runnable_ns = 0;
    uint64_t blocked_ns = 0;
    StackEnd end = StackEnd::whole;
    std::vector<NamedFrame> frames;  ///< innermost first
};

struct StacksAnswer {
    Window window;
    Coverage coverage;
    StacksBy by = StacksBy::op;
    bool off_cpu = false;
    uint64_t calls = 0;              ///< that the query asks about
    uint64_t calls_no_stack = 0;     ///< of these, made without a stack being kept
    bool more = false;               ///< stacks were left out for the limit
    std::vector<StackStats> stacks;  ///< most time first
};

/// Errors: those of the store; limit (too many stacks in the window); bad_request (no op of that name).
Result<StacksAnswer> compute_stacks(const StoreSnapshot& snapshot, const StacksQuery& query);

}  // namespace ingero
