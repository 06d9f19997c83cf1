// The devices of this host as the ranks of a plan take them, looked at by a process that takes none: a driver that was
// started does not survive a fork, and the ranks' processes are forked.
#pragma once

#include "runtime/device/cuda/context.h"
#include "runtime/device/device.h"
#include "runtime/mesh.h"

#include <functional>

namespace espalier::rt::cuda {

/// Runs `work` in a process of its own and returns what it returns, or throws what it throws: PlanError, MemoryError.
std::string inOtherProcess(const std::function<std::string()> &work);

/// The object of the highest level that the device runs; null for a plan without kernels. Throws PlanError.
const pb::Object *chooseObject(const pb::Plan &plan, const DeviceFacts &device);

/// The device of a rank where `count` are shown.
int ordinalOf(const DevicePlace &place, int count);

/// Throws PlanError or MemoryError unless each rank finds a device that runs the plan and has room for all that share
/// it. Starts the driver. Returns a line per device: "CUDA device 0 (NVIDIA H200 sm_90): rank 0, 1.25 of 139.72 GiB".
/// `ncclVersion`: 0 where the plan needs none.
std::string describeDevices(const Driver &driver, int ncclVersion, const pb::Plan &plan, const Mesh &mesh,
                            std::span<const DeviceDemand> ranks);

} // namespace espalier::rt::cuda
