// The kind "idle-in-tool-call": devices that wait while the program waits for another's answer. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_idle_in_tool_call(const DetectorContext& context);

}  // namespace ingero
