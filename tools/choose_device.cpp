// dlopen returns an already loaded library of the same name. The back end thus needs no code for emulation.
#include "tools/choose_device.h"

#include "format/mesh.h"
#include "runtime/status.h"

#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>

namespace espalier {

void loadEmulatedDevice(int devices) {
  setenv("ESPALIER_EMULATOR_DEVICES", std::to_string(devices).c_str(), /*overwrite=*/0);
  std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::filesystem::path folder = here.parent_path() / "emulator";
  for (const char *name : {"libcuda.so.1", "libcublasLt.so.13", "libnccl.so.2"})
    if (!dlopen((folder / name).c_str(), RTLD_NOW | RTLD_GLOBAL))
      throw rt::PlanError(fmt::format("the emulated device is not built; in the folder of the sources, `ninja -C build "
                                      "emulated_cuda emulated_cublaslt emulated_nccl` builds it ({})",
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
