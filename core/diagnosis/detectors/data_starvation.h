// The kind "data-starvation": devices that wait for their next step's input. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_data_starvation(const DetectorContext& context);

}  // namespace ingero
