// What the daemon says, put so that the bus can carry it: text, variants, errors, paths, memory files.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/diagnosis/incidents/incidents.h"
#include "core/model/event.h"
#include "core/model/result.h"
#include "dbus/sdbus.h"

namespace ingero {

using VariantMap = std::map<std::string, sdbus::Variant>;

inline constexpr const char* bus_path = "/io/ingero/Ingero1";

/// Valid UTF-8 without NUL, which is all the bus takes: one byte of a process's name must not cost the message.
std::string bus_text(std::string_view text);
/// "/io/ingero/Ingero1/process/PID_START".
std::string process_path(const ProcessKey& key);
std::optional<ProcessKey> process_of_path(std::string_view path);
std::string incident_path(std::string_view id);

/// Objects are a{sv}, arrays av, integers t where they are not negative (else x); nulls inside objects are left out and
/// null by itself is an empty string.
sdbus::Variant to_variant(const nlohmann::json& value);
VariantMap to_variant_map(const nlohmann::json& object);

/// io.ingero.Ingero1.Error.*, with the hint in brackets.
sdbus::Error to_bus_error(const Error& error);

/// As io.ingero.Ingero1.Incident has it.
nlohmann::json incident_json(const Incident& incident);

/// ASCII, one line.
std::string to_bus_json(const nlohmann::json& value);
/// A memory file with the text that nobody can change any more. Errors: internal.
Result<sdbus::UnixFd> sealed_file(std::string_view text);

}  // namespace ingero
