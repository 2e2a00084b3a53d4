// The kind "checkpoint-stall": steps that wait for a checkpoint to be written. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_checkpoint_stall(const DetectorContext& context);

}  // namespace ingero
