// The kind "cold-start": what first uses of functions cost. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_cold_start(const DetectorContext& context);

}  // namespace ingero
