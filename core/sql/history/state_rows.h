// The tables of what was measured or changed at a time: of hosts, GPUs, ports and traced libraries, a row each.
#pragma once

#include <memory>

#include "core/sql/history/history_rows.h"

namespace ingero {

/// Whether whoever asks may know of it. Errors: corrupt.
Result<bool> is_shown(const StateHead& head, const Filter& filter);

std::unique_ptr<HistoryRows> make_system_snapshot_rows();
std::unique_ptr<HistoryRows> make_gpu_sample_rows();
std::unique_ptr<HistoryRows> make_gpu_event_rows();
std::unique_ptr<HistoryRows> make_port_sample_rows();
std::unique_ptr<HistoryRows> make_library_rows();

}  // namespace ingero
