// The kind "slow-request": requests that took longer than their like for stalls inside of them. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_slow_request(const DetectorContext& context);

}  // namespace ingero
