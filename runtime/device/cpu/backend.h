// The CPU: kernels mapped from the plan, library calls of runtime/kernels, work done at once by the rank's threads.
#pragma once

#include "runtime/device/cpu/arena.h"
#include "runtime/device/cpu/kernel_object.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"

#include <vector>

namespace espalier::rt {

class CpuBackend final : public Backend {
public:
  /// Throws PlanError where the plan's kernels or calls cannot run here.
  CpuBackend(const pb::Plan &plan, int threads);

  std::string level() const override { return object.level(); }
  uint64_t hostBytes(const pb::Stage &stage, int threads) const override;
  std::unique_ptr<Device> open(const pb::Stage &stage, const RankHost &host) override;

  KernelFunction kernel(uint32_t index) const { return kernels[index]; }
  const LibraryKernel &call(uint32_t subprogram, uint32_t instruction) const { return *calls[subprogram][instruction]; }
  /// Scratch that the calls of a stage need.
  size_t scratchBytesPerThread(const pb::Stage &stage) const;
  size_t sharedScratchBytes(const pb::Stage &stage) const;
  const pb::Plan &plan() const { return thePlan; }

private:
  size_t mostOf(const pb::Stage &stage, size_t (LibraryKernel::*bytes)() const) const;

  const pb::Plan &thePlan;
  KernelObject object;
  std::vector<KernelFunction> kernels;
  /// By subprogram and instruction; null where the instruction is no library call.
  std::vector<std::vector<std::unique_ptr<LibraryKernel>>> calls;
};

} // namespace espalier::rt
