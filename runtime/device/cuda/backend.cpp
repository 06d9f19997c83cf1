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

/// The object of the highest level that the device runs; null for a plan without kernels.
const pb::Object *chooseObject(const pb::Plan &plan, const Context &context) {
  const pb::Object *best = nullptr;
  std::string levels;
  for (const pb::Object &object : plan.objects()) {
    int capability = capabilityOf(object.level());
    levels += (levels.empty() ? "" : ", ") + object.level();
    if (capability > 0 && capability <= context.capability() && (!best || capability > capabilityOf(best->level())))
      best = &object;
  }
  if (!best && !plan.kernels().empty())
    throw PlanError(fmt::format("the plan's kernels are for [{}], CUDA device {} is {}", levels, context.ordinal,
                                context.describe()));
  if (best && best->geometry_size() != plan.kernels_size())
    throw PlanError(fmt::format("the plan says how {} kernels become grids on {}, it has {}", best->geometry_size(),
                                best->level(), plan.kernels_size()));
  return best;
}

PlanKernel prepare(const Module &module, const std::string &symbol, const pb::Geometry &geometry) {
  if (geometry.threads() == 0 || geometry.extent_per_block() == 0)
    throw PlanError(fmt::format("kernel '{}' has blocks of {} threads for {} iterations, needs at least 1 of each",
                                symbol, geometry.threads(), geometry.extent_per_block()));
  return {symbol,
          module.kernel(symbol, geometry.threads(), geometry.shared_bytes()),
          geometry.threads(),
          geometry.extent_per_block(),
          geometry.columns_per_block(),
          geometry.shared_bytes()};
}

} // namespace

// Devices are taken in the order of ranks of this host; one rank takes the first.
CudaBackend::CudaBackend(const pb::Plan &plan)
    : theContext(driver, /*ordinal=*/0), theMatmuls(theContext, cublas), object(chooseObject(plan, theContext)),
      module(theContext, object ? object->code() : ""), calls(plan, theMatmuls) {
  for (int i = 0; i < plan.kernels_size(); ++i)
    kernels.push_back(prepare(module, plan.kernels(i).symbol(), object->geometry(i)));
  const pb::Mesh &mesh = plan.mesh();
  uint64_t ranks = uint64_t(mesh.pp()) * mesh.dp() * mesh.cp() * mesh.ep() * mesh.tp();
  if (ranks > 1)
    throw PlanError(fmt::format("a plan of {} ranks on CUDA needs NCCL, which this version does not use; plan for one "
                                "device",
                                ranks));
  theContext.requireFree(plan.stages(0).arena_bytes(pb::DEVICE), Matmuls::workspaceBytes);
}

std::string CudaBackend::level() const { return fmt::format("{} ({})", theContext.architecture(), theContext.name); }

std::unique_ptr<Device> CudaBackend::open(const pb::Stage &stage, const RankHost &) {
  return std::make_unique<CudaDevice>(*this, stage);
}

} // namespace espalier::rt::cuda

extern "C" espalier::rt::Backend *espalierCudaBackend(const espalier::rt::pb::Plan &plan) {
  return new espalier::rt::cuda::CudaBackend(plan);
}
