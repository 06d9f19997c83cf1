// The CPU back end is linked into the runtime. The CUDA back end is a shared library, so the binary starts without
// CUDA.
#include "runtime/device/cpu/backend.h"

#include "runtime/status.h"

#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

/// Returns the path of the CUDA back end: in lib/ next to the folder of the command, in build trees and installations.
std::filesystem::path cudaLibrary() {
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (std::filesystem::path place = folder; place.has_relative_path(); place = place.parent_path())
    if (std::filesystem::path file = place / "lib" / "libespalier_cuda.so"; std::filesystem::exists(file))
      return file;
  return "libespalier_cuda.so";
}

/// Opens the library of the CUDA back end. Throws PlanError if it is not there.
void *openCudaLibrary() {
  void *library = dlopen(cudaLibrary().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw PlanError(fmt::format("the plan is compiled for cuda, whose back end is not built; in the folder of the "
                                "sources, `./dev build` builds it ({})",
                                dlerror()));
  return library;
}

std::unique_ptr<Backend> loadCuda(const pb::Plan &plan) {
  void *library = openCudaLibrary();
  auto make = reinterpret_cast<Backend *(*)(const pb::Plan &)>(dlsym(library, cudaBackendSymbol));
  if (!make)
    throw PlanError(fmt::format("the back end for cuda is of another version of Espalier: {}", dlerror()));
  return std::unique_ptr<Backend>(make(plan));
}

} // namespace

void requireCudaBackend() { openCudaLibrary(); }

std::unique_ptr<Backend> loadBackend(const pb::Plan &plan, int threads, Weights weights) {
  if (plan.target() != "cuda")
    return std::make_unique<CpuBackend>(plan, threads, weights);
  if (weights == Weights::Q8)
    throw PlanError("weights q8_0 are for CPUs, and the plan is compiled for cuda; give a folder with --device cpu, a "
                    "plan that is compiled with --target cpu, or leave --weights out");
  return loadCuda(plan);
}

} // namespace espalier::rt
