// compile_unwind_table on any bytes: no crash, rows sorted, none outside 4 GiB.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/symbols/unwind_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    static const int file = memfd_create("unwind-fuzz", MFD_CLOEXEC);
    if (ftruncate(file, 0) != 0 || pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size)) abort();
    const auto table = ingero::compile_unwind_table(file, {.rows = 100'000});
    if (!table) return 0;
    if (table->rows.size() > 100'000) abort();
    for (size_t i = 1; i < table->rows.size(); ++i)
        if (table->rows[i - 1].address >= table->rows[i].address) abort();
    return 0;
}
