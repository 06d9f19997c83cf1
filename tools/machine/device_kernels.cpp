// Builds a plan with only the kernels, and an arena for the buffers of one launch.
#include "tools/machine/device_kernels.h"

#include "runtime/comm/local.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"
#include "runtime/status.h"
#include "runtime/thread_pool.h"
#include "tools/run/choose_device.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <vector>

namespace espalier {
namespace {

constexpr uint64_t arenaBytes = 512 << 20, alignment = 256;

rt::pb::Plan kernelsOf(const rt::pb::Plan &plan) {
  rt::pb::Plan kernels;
  kernels.set_version(plan.version());
  kernels.set_target(plan.target());
  *kernels.mutable_kernels() = plan.kernels();
  *kernels.mutable_objects() = plan.objects();
  for (auto set : {&rt::pb::Mesh::set_pp, &rt::pb::Mesh::set_dp, &rt::pb::Mesh::set_cp, &rt::pb::Mesh::set_ep,
                   &rt::pb::Mesh::set_tp, &rt::pb::Mesh::set_ranks_per_host})
    (kernels.mutable_mesh()->*set)(1);
  rt::pb::Stage &stage = *kernels.add_stages();
  stage.add_arena_bytes(arenaBytes);
  stage.add_arena_bytes(0);
  return kernels;
}

class DeviceKernels final : public KernelRunner {
public:
  explicit DeviceKernels(const rt::pb::Plan &whole)
      : plan(kernelsOf(whole)), world(1), communicator(world.communicator(0)), pool(1, 0),
        backend(rt::loadBackend(plan, 1)), device(backend->open(plan.stages(0), {*communicator, pool, 0})) {}

  std::string level() const override { return backend->level(); }

  void run(uint32_t kernel, std::span<const std::span<char>> buffers, std::span<const int64_t> scalars,
           int64_t extent) override {
    std::vector<rt::Place> places;
    uint64_t end = 0;
    for (std::span<char> buffer : buffers) {
      places.push_back({.offset = end});
      end += (buffer.size() + alignment - 1) / alignment * alignment;
    }
    if (end > arenaBytes)
      throw rt::PlanError(fmt::format("kernel {} is checked on buffers of {} bytes, there is room for {}",
                                      plan.kernels(static_cast<int>(kernel)).symbol(), end, arenaBytes));
    for (size_t i = 0; i < buffers.size(); ++i)
      device->copyIn(places[i].offset, buffers[i].data(), buffers[i].size());
    device->launch({.kernel = kernel, .buffers = places, .scalars = scalars, .extent = extent, .grain = 1});
    for (size_t i = 0; i < buffers.size(); ++i)
      device->copyOut(buffers[i].data(), places[i].offset, buffers[i].size());
  }

  void call(const rt::pb::LibraryCall &call, std::span<const rt::pb::DataType> types,
            std::span<const std::span<char>> buffers, std::span<const int64_t> scalars, uint32_t seed) override {
    std::unique_ptr<rt::LibraryKernel> kernel = rt::makeLibraryKernel(call, types, /*threads=*/1);
    std::vector<void *> places;
    for (std::span<char> buffer : buffers)
      places.push_back(buffer.data());
    std::vector<Line> shared(kernel->sharedScratchBytes() / sizeof(Line) + 1);
    std::vector<Line> own(kernel->scratchBytesPerThread() / sizeof(Line) + 1);
    rt::CallArguments arguments{.buffers = places.data(),
                                .scalars = scalars.data(),
                                .adds = call.store() == rt::pb::ADD,
                                .scratch = shared.data(),
                                .seed = seed};
    for (int64_t part = 0; part < kernel->parts(); ++part)
      kernel->run(arguments, part, own.data());
    kernel->finish(arguments);
  }

private:
  struct alignas(64) Line {
    char bytes[64];
  };

  const rt::pb::Plan plan;
  rt::LocalWorld world;
  std::unique_ptr<rt::Communicator> communicator;
  rt::ThreadPool pool;
  std::unique_ptr<rt::Backend> backend;
  std::unique_ptr<rt::Device> device;
};

} // namespace

std::unique_ptr<KernelRunner> openDeviceKernels(const rt::pb::Plan &plan) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  chooseDevice(driver ? "cuda" : "emulated", plan, "the plan");
  return std::make_unique<DeviceKernels>(plan);
}

} // namespace espalier
