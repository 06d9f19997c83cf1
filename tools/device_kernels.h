// Single kernels of a plan for GPUs, for `compile --check`.
#pragma once

#include "compiler/kernel_runner.h"

namespace espalier {

/// On the first GPU of this machine or, where it has no driver, on the emulated device. Throws PlanError.
std::unique_ptr<KernelRunner> openDeviceKernels(const rt::pb::Plan &plan);

} // namespace espalier
