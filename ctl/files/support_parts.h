// The parts of a support bundle that come from elsewhere than ingerod's answers. Each hands back text that says nothing
// of a program: see support_bundle.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/model/result.h"

namespace ingero::ctl {

/// A configuration with its comments gone, and of its values only switches, numbers, sizes and durations of keys that
/// are known. Errors: bad_request (it is no TOML; what it says is not repeated).
Result<std::string> bare_configuration(std::string_view text);
/// That of `path` and of the files that are laid over it. Errors: not_found, denied, bad_request.
Result<std::string> read_configuration(const std::string& path);

/// What systemd says of ingerod's units, of a fixed list of properties. Errors: not_found (there is no systemd),
/// deadline.
Result<std::string> read_units();

/// One line of `journalctl --output=json`, as the bundle has it: time, kind and priority, and the text of those kinds
/// of messages that never name a program. Null of any other.
nlohmann::json bare_journal_line(std::string_view line);
/// The latest such lines. Errors: not_found (there is no journal), deadline.
Result<std::string> read_journal();

/// The BPF programs of this host: a JSON object a line. Errors: denied.
Result<std::string> list_bpf_programs();

}  // namespace ingero::ctl
