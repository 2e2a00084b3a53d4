// ingerod.conf, as an administrator's editor may leave it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daemon/ingerod/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ingero::Config config;
    (void)ingero::apply_config_text(config, {reinterpret_cast<const char*>(data), size}, "fuzz");
    return 0;
}
