#include "daemon/ingerod/relay/relay_message.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/store/rows/state_names.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr uint64_t max_age_ns = 60'000'000'000;
/// Two clocks are read one after the other.
constexpr uint64_t max_ahead_ns = 1'000'000'000;
constexpr size_t max_text_bytes = 96;
constexpr size_t max_list_bytes = 1'024;
constexpr size_t max_reason_bytes = 300;
constexpr double max_gpu_index = 1'024;
/// Of a text in a store: cut short it would be none of JSON any more.
constexpr size_t max_processes_bytes = 4'096;

auto wrong(std::string_view what) {
    return fail(ErrorCode::bad_request, "ingero-relay sent an invalid message: " + std::string(what));
}

const json* member(const json& message, const char* name) {
    const auto found = message.find(name);
    return found == message.end() ? nullptr : &*found;
}

std::string_view text_of(const json& message, const char* name) {
    const json* value = member(message, name);
    return value && value->is_string() ? std::string_view(value->get_ref<const std::string&>()) : std::string_view();
}

std::optional<uint64_t> count_of(const json& message, const char* name) {
    const json* value = member(message, name);
    if (!value || !value->is_number_unsigned()) return std::nullopt;
    return value->get<uint64_t>();
}

/// An identifier: what is stored beside it is found by it.
bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= max_text_bytes && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
               c == '.' || c == ':';
    });
}

/// Printable ASCII of it.
std::string plain(std::string_view text, size_t most) {
    std::string result(text.substr(0, most));
    std::replace_if(
        result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return result;
}

bool read_values(const json& message, StateRow& row) {
    const json* values = member(message, "values");
    if (!values || !values->is_object() || values->size() > state_names.size()) return false;
    for (const auto& [name, value] : values->items()) {
        if (number_of_state(name) == 0 || !value.is_number() || !std::isfinite(value.get<double>())) return false;
        const auto number = value.get<double>();
        if (name == "gpu_index" && !(number >= 0 && number < max_gpu_index && number == std::trunc(number)))
            return false;
        row.values.emplace_back(name, number);
    }
    return true;
}

bool read_processes(const json& message, RelaySample& sample) {
    const json* processes = member(message, "processes");
    if (!processes) return true;
    if (!processes->is_array() || processes->size() > max_gpu_processes) return false;
    std::string kept = "[";
    for (const json& one : *processes) {
        const bool has_pid = one.is_array() && one.size() == 2 && one[0].is_number_unsigned() &&
                             one[0].get<uint64_t>() - 1 < uint64_t{INT32_MAX};
        if (!has_pid || !(one[1].is_number_unsigned() || one[1].is_null())) return false;
        GpuProcess process{.pid = one[0].get<uint32_t>(), .memory_bytes = {}};
        if (one[1].is_number_unsigned()) process.memory_bytes = one[1].get<uint64_t>();
        sample.processes.push_back(process);
        const std::string text = one.dump();
        if (kept.size() + text.size() + 2 <= max_processes_bytes) kept += (kept.size() == 1 ? "" : ",") + text;
    }
    sample.row.texts.emplace_back("processes", kept + "]");
    return true;
}

void read_text(const json& message, const char* name, StateRow& row) {
    if (const std::string_view text = text_of(message, name); !text.empty())
        row.texts.emplace_back(name, plain(text, max_text_bytes));
}

Result<RelayMessage> read_source(const json& message) {
    constexpr std::string_view names[] = {"gpus", "ports"};
    constexpr std::string_view states[] = {"off",    "starting", "polling", "absent",
                                           "failed", "hung",     "crashed", "refused"};
    const std::string_view name = text_of(message, "source"), state = text_of(message, "state");
    if (std::find(std::begin(names), std::end(names), name) == std::end(names)) return wrong("an unknown source");
    if (std::find(std::begin(states), std::end(states), state) == std::end(states))
        return wrong("an unknown state of a source");
    return RelaySource{std::string(name), std::string(state), plain(text_of(message, "reason"), max_reason_bytes)};
}

Result<RelayMessage> read_gpu(const json& message, RelaySample sample) {
    const std::string_view uuid = text_of(message, "uuid");
    if (!is_name(uuid)) return wrong("a GPU without a valid UUID");
    if (!read_values(message, sample.row)) return wrong("bad values of a GPU");
    for (const char* name : {"name", "pci"}) read_text(message, name, sample.row);
    // Cut short it would be another list.
    if (const std::string_view cpus = text_of(message, "local_cpus"); !cpus.empty() && cpus.size() <= max_list_bytes)
        sample.row.texts.emplace_back("local_cpus", plain(cpus, max_list_bytes));
    if (!read_processes(message, sample)) return wrong("bad processes of a GPU");
    sample.row.source = std::string(gpu_source).append(uuid);
    return sample;
}

Result<RelayMessage> read_gpu_event(const json& message, RelaySample sample) {
    const std::string_view uuid = text_of(message, "uuid");
    const auto xid = count_of(message, "xid");
    if (!is_name(uuid) || !xid || *xid > UINT32_MAX) return wrong("a bad event of a GPU");
    sample.row.source = std::string(gpu_event_source).append(uuid);
    sample.row.values.emplace_back("xid", static_cast<double>(*xid));
    return sample;
}

Result<RelayMessage> read_inventory(const json& message, uint64_t time_ns) {
    const json* uuids = member(message, "uuids");
    if (!uuids || !uuids->is_array() || uuids->size() > max_gpus) return wrong("a bad list of GPUs");
    RelayInventory inventory{.time_ns = time_ns, .uuids = {}};
    for (const json& uuid : *uuids) {
        if (!uuid.is_string() || !is_name(uuid.get_ref<const std::string&>()))
            return wrong("a GPU without a valid UUID");
        inventory.uuids.insert(uuid.get<std::string>());
    }
    return inventory;
}

Result<RelayMessage> read_port(const json& message, RelaySample sample) {
    const std::string_view device = text_of(message, "device");
    const auto port = count_of(message, "port");
    if (!is_name(device) || !port || *port > UINT8_MAX) return wrong("a port without a valid name");
    if (!read_values(message, sample.row)) return wrong("bad values of a port");
    for (const char* name : {"state", "physical_state", "link_layer"}) read_text(message, name, sample.row);
    sample.row.source = std::string(port_source).append(device) + "/" + std::to_string(*port);
    return sample;
}

}  // namespace

Result<RelayMessage> parse_relay_message(const json& message, uint64_t now_ns) {
    if (!message.is_object()) return wrong("not a map");
    const std::string_view kind = text_of(message, "kind");
    if (kind == "source") return read_source(message);
    const auto time_ns = count_of(message, "time_ns");
    if (!time_ns || *time_ns > now_ns + max_ahead_ns || *time_ns + max_age_ns < now_ns)
        return wrong("no time, or one that is out of range");
    RelaySample sample;
    sample.row.time_ns = std::min(*time_ns, now_ns);
    if (kind == "gpu") return read_gpu(message, std::move(sample));
    if (kind == "gpu_event") return read_gpu_event(message, std::move(sample));
    if (kind == "inventory") return read_inventory(message, sample.row.time_ns);
    if (kind == "port") return read_port(message, std::move(sample));
    return wrong("an unknown kind");
}

}  // namespace ingero
