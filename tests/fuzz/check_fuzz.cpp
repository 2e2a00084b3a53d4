// What ingeroctl check reads of others: the answer of a daemon or of `ingerod --check`, and the list of ldconfig.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/render/render.h"
#include "daemon/ingerod/check/library_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const std::string& path : ingero::libraries_of_ldconfig(text))
        if (!ingero::library_of_path(path)) abort();
    const auto answer = nlohmann::json::parse(text, nullptr, false);
    const std::string shown = ingero::text_check(answer, {.width = 60, .colour = false});
    if (shown.find('\x1b') != std::string::npos) abort();
    return 0;
}
