// dlopen() needs a path. A memory file has a path under /proc, so nothing is written to disk.
#include "runtime/device/cpu/kernel_object.h"

#include "runtime/status.h"

#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace espalier::rt {
namespace {

/// Makes a memory file with the given content. The caller closes it.
int memoryFile(const std::string &content) {
  int file = memfd_create("espalier-kernels", MFD_CLOEXEC);
  size_t written = 0;
  while (file >= 0 && written < content.size()) {
    ssize_t count = write(file, content.data() + written, content.size() - written);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      close(file);
      file = -1;
      break;
    }
    written += count;
  }
  if (file < 0)
    throw PlanError(fmt::format("the plan's kernels cannot be put into memory: {}", std::strerror(errno)));
  return file;
}

const pb::Object *bestObject(const pb::Plan &plan) {
  const pb::Object *best = nullptr;
  for (const pb::Object &object : plan.objects()) {
    int level = levelNumber(object.level());
    if (level > 0 && level <= hostLevel() && (!best || level > levelNumber(best->level())))
      best = &object;
  }
  return best;
}

} // namespace

int levelNumber(const std::string &level) {
  if (level == "x86-64")
    return 1;
  if (level == "x86-64-v3")
    return 3;
  return level == "x86-64-v4" ? 4 : 0;
}

int hostLevel() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
    return 1;
  bool hasAvx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512cd");
  return hasAvx512 ? 4 : 3;
}

std::string hostLevelName() {
  for (std::string_view name : cpuLevels)
    if (levelNumber(std::string(name)) == hostLevel())
      return std::string(name);
  return "";
}

KernelObject::KernelObject(const pb::Plan &plan) {
  if (plan.target() != "cpu")
    throw PlanError(fmt::format(
        "the plan is compiled for {}, and this runs it on the cpu; compile it with --target cpu", plan.target()));
  if (plan.kernels_size() == 0)
    return;
  const pb::Object *object = bestObject(plan);
  if (!object) {
    std::string levels;
    for (const pb::Object &other : plan.objects())
      levels += (levels.empty() ? "" : ", ") + other.level();
    throw PlanError(fmt::format("the plan's kernels are for [{}], none of which this processor "
                                "runs; compile for x86-64",
                                levels));
  }
  file = memoryFile(object->code());
  handle = dlopen(fmt::format("/proc/self/fd/{}", file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    close(file);
    throw PlanError(fmt::format("the plan's kernels cannot be mapped: {}", dlerror()));
  }
  chosen = object->level();
}

KernelObject::~KernelObject() {
  if (!handle)
    return;
  dlclose(handle);
  close(file);
}

KernelFunction KernelObject::function(const std::string &symbol) const {
  void *address = handle ? dlsym(handle, symbol.c_str()) : nullptr;
  if (!address)
    throw PlanError(fmt::format("the plan's kernels lack '{}'", symbol));
  return reinterpret_cast<KernelFunction>(address);
}

} // namespace espalier::rt
