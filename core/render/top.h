// One look at what traced programs do, for `ingeroctl top`: the text of docs/schemas/top.schema.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/render/render.h"

namespace ingero {

enum class TopSort { lost, calls, longest, memory, pid };
inline constexpr size_t top_sorts = 5;
/// "lost", "calls", "longest", "memory", "pid".
std::string_view to_string(TopSort sort);
std::optional<TopSort> parse_top_sort(std::string_view text);

/// What of it is shown.
struct TopView {
    TopSort sort = TopSort::lost;   ///< largest first; pid: lowest first
    std::string filter{};           ///< part of a pid, command or unit; empty: all
    std::optional<uint64_t> pid{};  ///< the process that is selected
    bool detail = false;            ///< that process alone, with its operations
    size_t height = 0;              ///< lines that there is room for; 0: as many as it takes
};

/// The processes that the filter leaves, in the order in which they are shown.
std::vector<uint64_t> top_pids(const nlohmann::json& answer, const TopView& view);

/// Lines, each with a newline, at most `view.height`; as wide as the style says where that is 60 columns or more. The
/// selected process has a ">" before it. Does not throw.
std::string text_top(const nlohmann::json& answer, const TopView& view, const TextStyle& style);

}  // namespace ingero
