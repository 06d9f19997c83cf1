#include "runtime/device/cuda/backend.h"

#include "runtime/device/cuda/device.h"
#include "runtime/status.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

/// 80 for "sm_80", 0 for what is no such level.
int capabilityOf(const std::string &level) {
  int number = 0;
  if (level.starts_with("sm_"))
    std::from_chars(level.data() + 3, level.data() + level.size(), number);
  return number;
}

/// The text of the highest level that the device runs; empty for a plan without kernels.
std::string chooseText(const pb::Plan &plan, const Context &context) {
  const pb::KernelObject *best = nullptr;
  std::string levels;
  for (const pb::KernelObject &object : plan.objects()) {
    int capability = capabilityOf(object.level());
    levels += (levels.empty() ? "" : ", ") + object.level();
    if (capability > 0 && capability <= context.capability() && (!best || capability > capabilityOf(best->level())))
      best = &object;
  }
  if (!best && !plan.kernels().empty())
    throw PlanError(fmt::format("the plan's kernels are for [{}], CUDA device {} is {}", levels, context.ordinal,
                                context.describe()));
  return best ? best->code() : std::string();
}

PlanKernel prepare(const Module &module, const pb::Kernel &kernel) {
  if (kernel.threads() == 0 || kernel.extent_per_block() == 0)
    throw PlanError(fmt::format("kernel '{}' has blocks of {} threads for {} iterations, needs at least 1 of each",
                                kernel.symbol(), kernel.threads(), kernel.extent_per_block()));
  return {kernel.symbol(),
          module.kernel(kernel.symbol(), kernel.threads(), kernel.shared_bytes()),
          kernel.threads(),
          kernel.extent_per_block(),
          kernel.columns_per_block(),
          kernel.shared_bytes()};
}

} // namespace

// Devices are taken in the order of ranks of this host; one rank takes the first.
CudaBackend::CudaBackend(const pb::Plan &plan)
    : theContext(driver, /*ordinal=*/0), theMatmuls(theContext, cublas),
      module(theContext, chooseText(plan, theContext)), calls(plan, theMatmuls) {
  for (const pb::Kernel &kernel : plan.kernels())
    kernels.push_back(prepare(module, kernel));
  uint64_t ranks = 1;
  for (const pb::Axis &axis : plan.mesh())
    ranks *= axis.size();
  if (ranks > 1)
    throw PlanError(fmt::format("a plan of {} ranks on CUDA needs NCCL, which this version does not use; plan for one "
                                "device",
                                ranks));
  theContext.requireFree(plan.stages(0).arena_bytes(), Matmuls::workspaceBytes);
}

std::string CudaBackend::level() const { return fmt::format("{} ({})", theContext.architecture(), theContext.name); }

std::unique_ptr<Device> CudaBackend::open(const pb::Stage &stage, const RankHost &) {
  return std::make_unique<CudaDevice>(*this, stage);
}

} // namespace espalier::rt::cuda

extern "C" espalier::rt::Backend *espalierCudaBackend(const espalier::rt::pb::Plan &plan) {
  return new espalier::rt::cuda::CudaBackend(plan);
}
