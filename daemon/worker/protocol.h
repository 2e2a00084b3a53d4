// What ingerod and its workers agree on besides core/wire/worker_protocol.h.
#pragma once

#include "core/wire/worker_protocol.h"

namespace ingero {

/// Texts in one list of a request, such as the names a `symbols` request wants.
inline constexpr size_t max_listed_texts = 4'096;

}  // namespace ingero
