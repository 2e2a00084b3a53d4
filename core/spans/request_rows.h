// Several rows of one request as one. The children of a request that asks for several completions end one by one, each
// with a row of the client's id, and an emitter that was cut off sends again what was not acknowledged.
#pragma once

#include <vector>

#include "core/store/rows/history.h"

namespace ingero {

/// Whether two rows are of one request: they are requests, process and id are the same, and their starts lie within a
/// millisecond. Each child's start is computed from its own end, and a wall clock is read anew for what is sent again.
bool is_same_request(const SpanRow& a, const SpanRow& b);

/// How many completions of its request a row stands for, as its emitter or merge_request_rows() says.
double completions_of(const SpanRow& span);

/// Rows of one request become one, from the first start to the last end, with the output tokens of all its children.
/// Those of other kinds become one where they have the same id, process, start and end. In order of start afterwards.
void merge_request_rows(std::vector<SpanRow>& ret_spans);

}  // namespace ingero
