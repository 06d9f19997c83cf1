// dlopen returns an already loaded library of the same name. The back end thus needs no code for emulation.
#include "tools/run/choose_device.h"

#include "format/mesh.h"
#include "runtime/device/device.h"
#include "runtime/status.h"

#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <vector>

namespace espalier {

/// Returns the libraries of the emulated device.
static std::vector<std::filesystem::path> emulatedLibraries() {
  std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::filesystem::path folder = here.parent_path() / "emulator";
  return {folder / "libcuda.so.1", folder / "libcublasLt.so.13", folder / "libnccl.so.2"};
}

[[noreturn]] static void refuseEmulated(const std::string &reason) {
  throw rt::PlanError(fmt::format("the emulated device is not built; in the folder of the sources, `ninja -C build "
                                  "emulated_cuda emulated_cublaslt emulated_nccl` builds it ({})",
                                  reason));
}

void loadEmulatedDevice(int devices) {
  setenv("ESPALIER_EMULATOR_DEVICES", std::to_string(devices).c_str(), /*overwrite=*/0);
  for (const std::filesystem::path &library : emulatedLibraries())
    if (!dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL))
      refuseEmulated(dlerror());
}

void requireDevice(const std::string &device, const std::string &target) {
  if (!device.empty() && (device == "emulated" ? "cuda" : device) != target)
    throw rt::PlanError(fmt::format("--device {} does not run a plan for {}; give --target {}", device, target,
                                    device == "emulated" ? "cuda" : device));
  if (target != "cuda")
    return;
  rt::requireCudaBackend();
  std::error_code error;
  if (device == "emulated")
    for (const std::filesystem::path &library : emulatedLibraries()) { // loaded once the number of ranks is known
      if (!std::filesystem::exists(library, error))
        refuseEmulated(fmt::format("there is no {}", library.string()));
    }
  else if (!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
    throw rt::PlanError(fmt::format("--target cuda trains on a GPU, whose driver is not here ({}); `espalier compile` "
                                    "makes the plan for another machine",
                                    dlerror()));
}

void chooseDevice(const std::string &device, const rt::pb::Plan &plan, const std::string &file) {
  std::string target = device == "emulated" ? "cuda" : device;
  if (!device.empty() && target != plan.target())
    throw rt::PlanError(
        fmt::format("{} is compiled for {}, which --device {} does not run; compile it with --target {}", file,
                    plan.target(), device, target));
  if (device == "emulated")
    loadEmulatedDevice(rt::Mesh(plan.mesh()).ranks()); // one for each rank
}

} // namespace espalier
