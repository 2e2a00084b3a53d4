// The kind "throttling": steps that are slow while the GPU holds its clocks down. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_throttling(const DetectorContext& context);

}  // namespace ingero
