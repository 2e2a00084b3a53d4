// The kind "nccl-hang": a collective that some ranks have entered and that cannot end. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_nccl_hang(const DetectorContext& context);

}  // namespace ingero
