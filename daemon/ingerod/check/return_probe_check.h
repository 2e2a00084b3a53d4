// Whether return probes harm programs on this kernel: see probes/probed_return.h.
#pragma once

#include "daemon/ingerod/check/check.h"
#include "daemon/ingerod/probes/attach/probed_return.h"

namespace ingero {

CheckResult check_return_probes(ProbedReturn found);

}  // namespace ingero
