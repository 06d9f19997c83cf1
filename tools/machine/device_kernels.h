// Runs single kernels of a GPU plan, for `compile --check`.
#pragma once

#include "compiler/kernel_runner.h"

namespace espalier {

/// Opens the first GPU of this machine, or the emulated device if there is no driver. Throws PlanError.
std::unique_ptr<KernelRunner> openDeviceKernels(const rt::pb::Plan &plan);

} // namespace espalier
