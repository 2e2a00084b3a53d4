// Rows of a store as bytes that another process makes rows of again: what `ingeroctl record` copies by. Writer and
// reader stand side by side; the rows are written as in the store (rows.h), events as its blocks.
#pragma once

#include <string>
#include <string_view>

#include "core/store/store.h"

namespace ingero {

/// A batch but for covered_until_ns, and the session that it is of.
struct SessionBatch {
    Session session;
    Batch batch;
};

std::string encode_batch(const SessionBatch& batch);
/// Errors: corrupt, version.
Result<SessionBatch> decode_batch(std::string_view bytes);

}  // namespace ingero
