// A trace's stacks: names instead of places, in JSON. They become stacks of ours, whose files are in the state
// "imported".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/model/stack.h"

namespace ingero {

struct TraceFrame {
    std::string symbol;  ///< empty where only the address is known
    std::string file;
    uint64_t symbol_offset = 0;
    uint64_t address = 0;
    bool operator==(const TraceFrame&) const = default;
};

/// Innermost first, at most 1,024. False where the text is none, is too large (256 KiB) or nested: a hostile or a
/// damaged file.
bool parse_frames(std::string_view json, std::vector<TraceFrame>& ret_frames);

class TraceStacks {
  public:
    /// Ids go on after those that the store has.
    TraceStacks(uint32_t last_stack, uint32_t last_file) : last_stack_(last_stack), last_file_(last_file) {}

    /// What of a stack is new to the store.
    struct Rows {
        StackRow stack;
        std::vector<FileRow> files;
        std::vector<SymbolRow> symbols;
    };
    /// `json` that cannot be read leaves a stack without frames, whose end says so.
    Rows add(uint64_t hash, std::string_view json);
    /// The id of a stack that events have, made where the trace lost it. 0 for hash 0, or where there are too many.
    uint32_t id_of(uint64_t hash);
    /// Those made by id_of(), each once.
    std::vector<StackRow> take_lost();

    uint64_t stacks() const { return stacks_; }
    uint64_t unreadable() const { return unreadable_; }
    uint64_t lost() const { return lost_; }
    uint64_t used() const { return used_; }  ///< of stacks(), those that some event has
    bool full() const { return known_.size() >= max_stacks; }

  private:
    static constexpr size_t max_stacks = 1'000'000;
    static constexpr size_t max_places = 4'000'000;

    uint32_t file_of(const std::string& path, Rows& rows);
    StackFrame place_of(const TraceFrame& frame, Rows& rows);

    struct Known {
        bool in_trace = true;
        uint32_t id = 0;
        bool used = false;
    };
    std::unordered_map<uint64_t, Known> known_;
    std::map<std::string, uint32_t> files_;
    std::map<std::tuple<uint32_t, std::string, uint64_t, uint64_t>, uint64_t> places_;
    std::vector<StackRow> made_;
    uint32_t last_stack_;
    uint32_t last_file_;
    uint64_t stacks_ = 0, unreadable_ = 0, lost_ = 0, used_ = 0;
};

}  // namespace ingero
