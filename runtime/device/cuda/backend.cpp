#include "runtime/device/cuda/backend.h"

#include "runtime/device/cuda/device.h"
#include "runtime/device/cuda/nccl.h"
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

LoadedPlan::LoadedPlan(const Driver &driver, const CublasLt &cublas, const pb::Plan &plan, int ordinal)
    : context(driver, ordinal), theMatmuls(context, cublas), object(chooseObject(plan, context)),
      module(context, object ? object->code() : ""), calls(plan, theMatmuls) {
  for (int i = 0; i < plan.kernels_size(); ++i)
    kernels.push_back(prepare(module, plan.kernels(i).symbol(), object->geometry(i)));
}

// A plan of one rank is loaded at once, so that what is wrong is said here. Of several, each process loads what its
// ranks use, when it knows them.
CudaBackend::CudaBackend(const pb::Plan &plan) : plan(plan), mesh(plan.mesh()), devices(countDevices(driver)) {
  if (mesh.ranks() > 1)
    nccl.emplace();
  else
    load(0).context.requireFree(plan.stages(0).arena_bytes(pb::DEVICE), Matmuls::workspaceBytes);
}

std::string CudaBackend::level() const {
  DeviceFacts facts(driver, 0);
  return fmt::format("{} ({})", facts.architecture(), facts.name);
}

const LoadedPlan &CudaBackend::load(int ordinal) {
  std::lock_guard lock(mutex);
  std::unique_ptr<LoadedPlan> &place = loaded[ordinal];
  if (!place)
    place = std::make_unique<LoadedPlan>(driver, cublas, plan, ordinal);
  return *place;
}

// Devices are taken in the order of ranks; where fewer are shown, as on one of several equal hosts or to a process that
// is given one of its own, they begin again with the first.
std::unique_ptr<Device> CudaBackend::open(const pb::Stage &stage, const RankHost &host) {
  const LoadedPlan &device = load(host.communicator.rank() % std::max(devices, 1));
  device.context.makeCurrent();
  std::unique_ptr<NcclGroups> groups;
  if (nccl)
    groups = joinGroups(*nccl, plan, mesh, host);
  return std::make_unique<CudaDevice>(device, stage, host, std::move(groups));
}

} // namespace espalier::rt::cuda

extern "C" espalier::rt::Backend *espalierCudaBackend(const espalier::rt::pb::Plan &plan) {
  return new espalier::rt::cuda::CudaBackend(plan);
}
