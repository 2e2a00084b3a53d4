// symbolize_offsets and symbolize_addresses on any bytes: no crash, and no symbol that begins behind its place.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/symbols/symbolizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    static const int file = memfd_create("symbolizer-fuzz", MFD_CLOEXEC);
    if (ftruncate(file, 0) != 0 || pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size)) abort();
    const std::array<uint64_t, 6> places = {0, 0x1000, 0x1010, 0x1102, 0x11f9, ~0ULL};
    for (const auto& answer :
         {ingero::symbolize_offsets(file, places, {}), ingero::symbolize_addresses(file, places, {}),
          ingero::symbolize_offsets(file, places, "00")}) {
        if (!answer) continue;
        if (answer->symbols.size() != places.size()) abort();
        for (const auto& symbol : answer->symbols)
            if (symbol.offset > symbol.address || (symbol.name.empty() && symbol.offset != 0)) abort();
    }
    return 0;
}
