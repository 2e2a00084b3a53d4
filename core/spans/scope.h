// Scope groups: which processes work on the requests that one of them reports (docs/spans.md).
#pragma once

#include <string>
#include <string_view>

namespace ingero {

/// The part of a cgroup path that is a service, a scope or a container, the deepest there is: whatever runs in it works
/// on one thing. Empty where there is none: in the root, a slice, a login session or a user's service manager.
std::string scope_of_cgroup(std::string_view cgroup);

}  // namespace ingero
