#include "daemon/worker/answers/file_answers.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "core/symbols/elf_symbols.h"
#include "core/symbols/symbolizer.h"
#include "core/symbols/unwind_table.h"
#include "core/wire/utf8.h"
#include "daemon/worker/params.h"
#include "daemon/worker/protocol.h"

namespace ingero {

using nlohmann::json;

namespace {

/// Whole rows in binaries that stay within the limit of a string.
constexpr size_t rows_a_part = (48 << 10) / sizeof(ingero_unwind_row);

Result<std::vector<uint64_t>> places(const json& params, const char* name) {
    std::vector<uint64_t> result;
    const auto found = params.find(name);
    if (found == params.end()) return result;
    if (!found->is_array() || found->size() > max_places)
        return fail(ErrorCode::bad_request,
                    std::string("parameter ") + name + " is not a list of at most " + std::to_string(max_places));
    for (const json& place : *found) {
        if (!place.is_number_unsigned())
            return fail(ErrorCode::bad_request,
                        std::string("parameter ") + name + " contains something other than numbers");
        result.push_back(place.get<uint64_t>());
    }
    return result;
}

}  // namespace

Result<json> symbols_answer(const json& params, int fd) {
    if (fd < 0) return fail(ErrorCode::bad_request, "symbols needs a file descriptor");
    auto names = texts(params, "wanted", max_listed_texts);
    if (!names) return tl::unexpected(names.error());
    const auto static_symbols = flag(params, "static");
    if (!static_symbols) return tl::unexpected(static_symbols.error());
    std::sort(names->begin(), names->end());
    auto library = read_function_symbols(fd, *names, *static_symbols);
    if (!library) return tl::unexpected(library.error());
    json functions = json::array();
    for (const FunctionSymbol& f : library->functions)
        functions.push_back({{"name", f.name},
                             {"offset", f.file_offset},
                             {"size", f.size},
                             {"emulated", f.emulated},
                             {"code", f.code},
                             {"jumps_to", f.jumps_to}});
    return json{{"build_id", library->build_id},
                {"functions", std::move(functions)},
                {"misplaced", std::move(library->misplaced)}};
}

Result<json> unwind_answer(int fd) {
    if (fd < 0) return fail(ErrorCode::bad_request, "unwind needs a file descriptor");
    const auto table = compile_unwind_table(fd);
    if (!table) return tl::unexpected(table.error());
    json code = json::array(), parts = json::array();
    for (const ElfSegment& one : table->code)
        code.push_back({{"address", one.address}, {"offset", one.offset}, {"bytes", one.file_bytes}});
    for (size_t at = 0; at < table->rows.size(); at += rows_a_part) {
        const size_t count = std::min(rows_a_part, table->rows.size() - at);
        const auto* bytes = reinterpret_cast<const uint8_t*>(table->rows.data() + at);
        parts.push_back(json::binary({bytes, bytes + count * sizeof(ingero_unwind_row)}));
    }
    return json{{"build_id", table->build_id}, {"code", std::move(code)}, {"rows", std::move(parts)}};
}

Result<json> symbolize_answer(const json& params, int fd) {
    if (fd < 0) return fail(ErrorCode::bad_request, "symbolize needs a file descriptor");
    const auto offsets = places(params, "offsets"), addresses = places(params, "addresses");
    for (const auto* list : {&offsets, &addresses})
        if (!*list) return tl::unexpected(list->error());
    const json build_id = params.value("build_id", json(""));
    if (!build_id.is_string()) return fail(ErrorCode::bad_request, "parameter build_id is not a string");
    const auto& wanted = build_id.get_ref<const std::string&>();
    const auto mangled = flag(params, "mangled");
    if (!mangled) return tl::unexpected(mangled.error());
    const auto for_demangling = *mangled ? std::chrono::milliseconds(0) : demangling_budget;
    const auto file = offsets->empty() ? symbolize_addresses(fd, *addresses, wanted, for_demangling)
                                       : symbolize_offsets(fd, *offsets, wanted, for_demangling);
    if (!file) return tl::unexpected(file.error());
    json symbols = json::array();
    for (const FrameSymbol& one : file->symbols)
        symbols.push_back({{"name", to_valid_utf8(one.name)},
                           {"demangled", to_valid_utf8(one.demangled)},
                           {"offset", one.offset},
                           {"address", one.address}});
    return json{{"state", to_string(file->state)},
                {"build_id", file->build_id},
                {"debug_link", to_valid_utf8(file->debug_link)},
                {"symbols", std::move(symbols)}};
}

}  // namespace ingero
