// The kind "graph-recapture": graphs captured and instantiated again and again. See catalogue.cpp.
#pragma once

#include "core/diagnosis/detector.h"

namespace ingero {

std::unique_ptr<Detector> make_graph_recapture(const DetectorContext& context);

}  // namespace ingero
