// The kind "device-fault": the first error of a context that ends all work on it. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

/// A return code after which every call of the context fails: an illegal address, an assert and the like. Numbers as of
/// CUDA 10.1, the same in runtime and driver.
bool is_sticky_error(int32_t return_code);

std::unique_ptr<Detector> make_device_fault(const DetectorContext& context);

}  // namespace ingero
