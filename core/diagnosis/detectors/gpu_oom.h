// The kind "gpu-oom": allocations that failed for want of device memory. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_gpu_oom(const DetectorContext& context);

}  // namespace ingero
