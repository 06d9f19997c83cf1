// How many devices of a plan's kind this host shows.
#pragma once

#include "runtime/plan.pb.h"

namespace espalier {

/// Without starting a driver, which forked ranks could not use then: the device files and CUDA_VISIBLE_DEVICES, or the
/// number of emulated ones. 0 where it is not known, as of CPU plans.
int countDevices(const rt::pb::Plan &plan);

} // namespace espalier
