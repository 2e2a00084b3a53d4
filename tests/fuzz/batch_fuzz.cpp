// Rows that came from another process. What decodes and encodes again has as many of each.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/store/rows/batch_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto batch = ingero::decode_batch(std::string_view(reinterpret_cast<const char*>(data), size));
    if (!batch) return 0;
    const auto again = ingero::decode_batch(ingero::encode_batch(*batch));
    if (!again) return 0;  // the same row twice, in two blocks, is no block
    const auto counts = [](const ingero::Batch& rows) {
        return std::array{rows.events.size(),    rows.processes.size(),    rows.losses.size(), rows.gaps.size(),
                          rows.functions.size(), rows.stacks.size(),       rows.files.size(),  rows.symbols.size(),
                          rows.spans.size(),     rows.communicators.size()};
    };
    if (counts(again->batch) != counts(batch->batch)) abort();
    return 0;
}
