// The kind "gpu-leak": allocations of device memory that outlive all others of their place. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_gpu_leak(const DetectorContext& context);

}  // namespace ingero
