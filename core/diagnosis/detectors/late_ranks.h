// The kinds "collective-wait" and "straggler": ranks that wait for one that comes late, and the one that keeps doing
// so. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_late_ranks(const DetectorContext& context);

}  // namespace ingero
