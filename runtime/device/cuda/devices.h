// Checks this host's devices against the ranks of a plan, in a child process. A started driver does not survive a fork,
// and the rank processes are forked later.
#pragma once

#include "format/mesh.h"
#include "runtime/device/cuda/context.h"
#include "runtime/device/device.h"

#include <functional>

namespace espalier::rt::cuda {

/// Runs `work` in a child process and returns its result, or throws its PlanError or MemoryError.
std::string inOtherProcess(const std::function<std::string()> &work);

/// Returns the object of the highest level that the device runs; null for a plan without kernels. Throws PlanError.
const pb::Object *chooseObject(const pb::Plan &plan, const DeviceFacts &device);

/// Returns the device of a rank on a host that shows `count` devices.
int ordinalOf(const DevicePlace &place, int count);

/// Checks that each rank's device runs the plan and has room for all ranks that share it. Starts the driver. Returns a
/// line per device: "CUDA device 0 (NVIDIA H200 sm_90): rank 0, 1.25 of 139.72 GiB". `ncclVersion` is 0 if the plan
/// does not need NCCL. Throws PlanError or MemoryError.
std::string describeDevices(const Driver &driver, int ncclVersion, const pb::Plan &plan, const Mesh &mesh,
                            std::span<const DeviceDemand> ranks);

} // namespace espalier::rt::cuda
