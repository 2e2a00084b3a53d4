// read_function_symbols on any bytes: no crash, and no function outside the file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/symbols/elf_symbols.h"
#include "core/symbols/program_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    // One file for all inputs: making one each time would be most of the work.
    static const int file = memfd_create("elf-fuzz", MFD_CLOEXEC);
    static const std::vector<std::string> wanted = {"one", "three", "two"};  // as in the seeds
    if (ftruncate(file, 0) != 0 || pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size)) abort();
    (void)ingero::may_have_symbol_table(file);
    for (const bool static_symbols : {false, true}) {
        const auto symbols = ingero::read_function_symbols(file, wanted, static_symbols);
        if (!symbols) continue;
        for (const auto& function : symbols->functions)
            if (function.file_offset >= size || function.jumps_to >= size) abort();
    }
    return 0;
}
