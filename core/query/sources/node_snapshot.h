// One node of a store that has several: what answers about single processes are computed from, since a pid says nothing
// across nodes.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/store/store.h"

namespace ingero {

/// The names of a store's nodes, in the order of their first sessions.
std::vector<std::string> stored_nodes(const StoreSnapshot& snapshot);

/// Sessions, boots and processes of that node alone.
std::unique_ptr<StoreSnapshot> of_node(std::unique_ptr<StoreSnapshot> snapshot, const std::string& node);

}  // namespace ingero
