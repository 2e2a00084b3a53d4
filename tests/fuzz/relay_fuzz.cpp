// What comes on the relay's socket: a driver's library is part of what writes it.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "core/wire/value.h"
#include "daemon/ingerod/relay/relay_message.h"

namespace {

void check(bool holds) {
    if (!holds) std::abort();
}

bool is_plain(std::string_view text) {
    for (const char c : text)
        if (c < ' ' || c > '~') return false;
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    constexpr uint64_t now_ns = 1'000'000'000'000;
    ingero::ValueDecoder decoder(ingero::relay_limits);
    decoder.feed(std::as_bytes(std::span(data, size)));
    for (;;) {
        const auto value = decoder.next();
        if (!value || !*value) return 0;
        const auto message = ingero::parse_relay_message(**value, now_ns);
        if (!message) continue;
        if (const auto* source = std::get_if<ingero::RelaySource>(&*message)) {
            check(is_plain(source->reason) && source->reason.size() <= 300);
            continue;
        }
        if (const auto* inventory = std::get_if<ingero::RelayInventory>(&*message)) {
            check(inventory->time_ns <= now_ns && inventory->uuids.size() <= ingero::max_gpus);
            for (const auto& uuid : inventory->uuids) check(is_plain(uuid) && uuid.size() <= 96);
            continue;
        }
        const auto& sample = std::get<ingero::RelaySample>(*message);
        check(sample.row.time_ns <= now_ns && is_plain(sample.row.source));
        check(sample.processes.size() <= ingero::max_gpu_processes);
        for (const auto& [name, number] : sample.row.values) check(std::isfinite(number));
        for (const auto& [name, text] : sample.row.texts) check(is_plain(text));
    }
}
