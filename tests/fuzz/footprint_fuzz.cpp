// Records of a footprint, of any content, up to the text that a reader sees.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "core/render/footprint.h"
#include "daemon/ingerod/footprint/footprint_tally.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::span bytes(reinterpret_cast<const char*>(data), size);
    ingero::FootprintTally tally;
    while (bytes.size() >= sizeof(ingero_footprint_record)) {
        ingero_footprint_record record;
        std::memcpy(&record, bytes.data(), sizeof record);
        bytes = bytes.subspan(sizeof record);
        tally.add(record, bytes);
        bytes = bytes.subspan(std::min(bytes.size(), size_t{record.base_bytes} + record.text_bytes));
    }
    tally.finish();
    ingero::Footprint footprint;
    tally.write(footprint);
    const nlohmann::json answer = ingero::footprint_json(footprint, "node");
    if (answer.dump().empty() || ingero::text_footprint(answer).find('\033') != std::string::npos) abort();
    return 0;
}
