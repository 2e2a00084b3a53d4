// The rows of the table request_events: which calls overlap which requests.
#pragma once

#include <memory>

#include "core/sql/history/history_rows.h"

namespace ingero {

std::unique_ptr<HistoryRows> make_request_event_rows();

}  // namespace ingero
