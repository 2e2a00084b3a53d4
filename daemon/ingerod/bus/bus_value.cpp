#include "daemon/ingerod/bus/bus_value.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>
#include <vector>

#include "core/model/unique_fd.h"
#include "core/render/render.h"
#include "core/wire/utf8.h"

namespace ingero {

using nlohmann::json;

namespace {

constexpr std::string_view process_prefix = "/io/ingero/Ingero1/process/";

template <class Number>
bool read_number(std::string_view& text, Number& ret_number) {
    // Only one way to write a number, as a path is a name.
    if (text.size() > 1 && text[0] == '0') return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret_number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
}

const char* error_name(ErrorCode code) {
    switch (code) {
        case ErrorCode::denied:
            return "io.ingero.Ingero1.Error.Denied";
        case ErrorCode::not_found:
            return "io.ingero.Ingero1.Error.NotFound";
        case ErrorCode::bad_request:
        case ErrorCode::unknown_method:
        case ErrorCode::version:
            return "io.ingero.Ingero1.Error.InvalidArgument";
        case ErrorCode::limit:
            return "io.ingero.Ingero1.Error.Limit";
        case ErrorCode::busy:
        case ErrorCode::deadline:
            return "io.ingero.Ingero1.Error.Busy";
        case ErrorCode::corrupt:
        case ErrorCode::internal:
            break;
    }
    return "io.ingero.Ingero1.Error.Failed";
}

}  // namespace

std::string bus_text(std::string_view text) {
    std::string result = to_valid_utf8(text);
    std::replace(result.begin(), result.end(), '\0', ' ');
    return result;
}

std::string process_path(const ProcessKey& key) {
    return std::string(process_prefix) + std::to_string(key.pid) + "_" + std::to_string(key.start_ns);
}

std::optional<ProcessKey> process_of_path(std::string_view path) {
    if (!path.starts_with(process_prefix)) return std::nullopt;
    path.remove_prefix(process_prefix.size());
    ProcessKey key;
    if (!read_number(path, key.pid) || !path.starts_with('_')) return std::nullopt;
    path.remove_prefix(1);
    if (!read_number(path, key.start_ns) || !path.empty()) return std::nullopt;
    return key;
}

std::string incident_path(std::string_view id) {
    std::string path = "/io/ingero/Ingero1/incident/";
    for (const char c : id) {
        const bool allowed = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        path += allowed ? c : '_';
    }
    return path;
}

sdbus::Variant to_variant(const json& value) {
    if (value.is_object()) return sdbus::Variant(to_variant_map(value));
    if (value.is_array()) {
        std::vector<sdbus::Variant> list;
        for (const json& one : value) list.push_back(to_variant(one));
        return sdbus::Variant(list);
    }
    if (value.is_boolean()) return sdbus::Variant(value.get<bool>());
    if (value.is_number_float()) return sdbus::Variant(value.get<double>());
    if (value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() < 0)
        return sdbus::Variant(value.get<int64_t>());
    if (value.is_number_integer()) return sdbus::Variant(value.get<uint64_t>());
    return sdbus::Variant(bus_text(value.is_string() ? value.get<std::string>() : std::string()));
}

VariantMap to_variant_map(const json& object) {
    VariantMap map;
    for (const auto& [key, value] : object.items())
        if (!value.is_null()) map.emplace(bus_text(key), to_variant(value));
    return map;
}

sdbus::Error to_bus_error(const Error& error) {
    const std::string hint = error.hint.empty() ? "" : " (" + error.hint + ")";
    return {bus::ErrorName(error_name(error.code)), bus_text(error.message + hint)};
}

json incident_json(const Incident& incident) {
    json culprits = json::array();
    for (const Culprit& culprit : incident.culprits)
        culprits.push_back({{"name", to_valid_utf8(culprit.name)},
                            {"pid", culprit.pid != 0 ? json(culprit.pid) : json()},
                            {"ns", culprit.ns}});
    return {{"id", incident.id},
            {"kind", incident.kind},
            {"severity", to_string(incident.severity)},
            {"verdict", to_string(incident.verdict)},
            {"summary", to_valid_utf8(incident.summary)},
            {"pid", incident.process.pid},
            {"comm", to_valid_utf8(incident.comm)},
            {"lost_ns", incident.lost_ns},
            {"explained_fraction", incident.explained_fraction},
            {"opened_ns", incident.opened_realtime_ns},
            {"culprits", std::move(culprits)}};
}

std::string to_bus_json(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

Result<sdbus::UnixFd> sealed_file(std::string_view text) {
    UniqueFd file(memfd_create("ingero", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return fail(ErrorCode::internal, errno_message("memfd_create", errno));
    while (!text.empty()) {
        const ssize_t written = write(file.get(), text.data(), text.size());
        if (written < 0) return fail(ErrorCode::internal, errno_message("write", errno));
        text.remove_prefix(static_cast<size_t>(written));
    }
    constexpr int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    if (lseek(file.get(), 0, SEEK_SET) != 0 || fcntl(file.get(), F_ADD_SEALS, seals) != 0)
        return fail(ErrorCode::internal, errno_message("sealing a memory file", errno));
    return sdbus::UnixFd(file.release(), sdbus::adopt_fd);
}

}  // namespace ingero
