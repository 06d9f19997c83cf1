#include "runtime/device/cuda/backend.h"

#include "runtime/device/cuda/device.h"
#include "runtime/device/cuda/devices.h"
#include "runtime/device/cuda/nccl.h"
#include "runtime/status.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

namespace espalier::rt::cuda {
namespace {

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
    : context(driver, ordinal), freeAtFirst(context.memory().free), theMatmuls(context, cublas),
      object(chooseObject(plan, context)), module(context, object ? object->code() : ""), calls(plan, theMatmuls) {
  for (int i = 0; i < plan.kernels_size(); ++i)
    kernels.push_back(prepare(module, plan.kernels(i).symbol(), object->geometry(i)));
}

// A plan of one rank is loaded at once, so that errors are reported here. With several ranks, each process later loads
// the plan for its own ranks; only missing libraries are reported here.
CudaBackend::CudaBackend(const pb::Plan &plan) : plan(plan), mesh(plan.mesh()), cublas(cublasLtNames(driver.version)) {
  if (mesh.ranks() > 1)
    nccl.emplace();
  else
    load(0).context.requireFree(plan.stages(0).arena_bytes(pb::DEVICE), Matmuls::workspaceBytes);
}

std::string CudaBackend::level() const {
  if (mesh.ranks() == 1) {
    DeviceFacts facts(driver, 0);
    return fmt::format("{} ({})", facts.architecture(), facts.name);
  }
  std::string levels;
  for (const pb::Object &object : plan.objects())
    levels += (levels.empty() ? "" : ", ") + object.level();
  return levels;
}

// NCCL reads this variable when it is first used. requireOwnDevices() checks which ranks may share a device.
std::string CudaBackend::requireDevices(std::span<const DeviceDemand> ranks) const {
  if (nccl && std::ranges::any_of(ranks, [](const DeviceDemand &demand) { return demand.device.isShared; }))
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", /*overwrite=*/0);
  return inOtherProcess([&] { return describeDevices(driver, nccl ? nccl->version : 0, plan, mesh, ranks); });
}

const LoadedPlan &CudaBackend::load(int ordinal) {
  std::lock_guard lock(mutex);
  std::unique_ptr<LoadedPlan> &place = loaded[ordinal];
  if (!place)
    place = std::make_unique<LoadedPlan>(driver, cublas, plan, ordinal);
  return *place;
}

std::unique_ptr<Device> CudaBackend::open(const pb::Stage &stage, const RankHost &host) {
  const LoadedPlan &device = load(ordinalOf(host.device, countDevices(driver)));
  device.context.makeCurrent();
  std::unique_ptr<NcclGroups> groups;
  if (nccl)
    groups = joinGroups(*nccl, device.context, plan, mesh, host);
  return std::make_unique<CudaDevice>(device, stage, host, std::move(groups));
}

} // namespace espalier::rt::cuda

extern "C" espalier::rt::Backend *espalierCudaBackend(const espalier::rt::pb::Plan &plan) {
  return new espalier::rt::cuda::CudaBackend(plan);
}
