#include "runtime/device/cuda/library.h"

#include "runtime/status.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <link.h>

namespace espalier::rt::cuda {
namespace {

// The oldest versions that have every symbol in symbols.def.
constexpr int oldestDriver = 12000;
constexpr size_t oldestCublasLt = 120000;
constexpr int oldestNccl = 22600; // first to keep the issue order across communicators

const std::vector<std::string> driverNames = {"libcuda.so.1"};
constexpr int newestCuda = 13; // the newest version whose library names are known
const std::vector<std::string> ncclNames = {"libnccl.so.2"};

std::span<const std::string> orElse(std::span<const std::string> names, std::span<const std::string> usual) {
  return names.empty() ? usual : names;
}

void addMatches(std::vector<std::string> &folders, const std::string &pattern) {
  glob_t found = {};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    folders.insert(folders.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
}

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// NCCL reads its environment when it is first used. The ring algorithm adds in the same order in every step. The
/// implicit launch order serves the communicators of a device in start order, so that devices cannot deadlock.
std::span<const std::string> withNcclSettings(std::span<const std::string> names) {
  setenv("NCCL_ALGO", "Ring", /*overwrite=*/0);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  return orElse(names, ncclNames);
}

} // namespace

std::vector<std::string> cublasLtNames(int driverVersion) {
  std::vector<std::string> names;
  for (int major = std::min(driverVersion / 1000, newestCuda); major >= oldestDriver / 1000; --major)
    names.push_back(fmt::format("libcublasLt.so.{}", major));
  return names;
}

std::string versionText(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Library::Library(std::string what, std::span<const std::string> names, std::span<const std::string> folders)
    : what(std::move(what)) {
  std::string why; // the loader's error for the first name
  auto open = [&](const std::string &path) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle && why.empty())
      why = dlerror();
  };
  for (const std::string &name : names)
    if (!handle)
      open(name);
  for (const std::string &folder : folders)
    for (const std::string &name : names)
      if (!handle)
        open(folder + "/" + name);
  if (!handle)
    throw PlanError(fmt::format("the plan is for CUDA and needs {}: {}{}{}", this->what, why,
                                folders.empty() ? "" : "; nor is it in ", fmt::join(folders, ", ")));
  link_map *map = nullptr;
  file = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : names.front();
}

void *Library::find(const char *symbol) const { return dlsym(handle, symbol); }

void *Library::resolve(const char *symbol) const {
  if (void *address = find(symbol))
    return address;
  throw PlanError(fmt::format("{} ({}) lacks {}, which the CUDA back end needs", what, file, symbol));
}

std::vector<std::string> libraryFolders() {
  std::vector<std::string> folders;
  for (const char *name : {"CUDA_HOME", "CUDA_PATH"})
    if (std::string root = environment(name); !root.empty())
      addMatches(folders, root + "/lib64");
  addMatches(folders, "/usr/local/cuda/lib64");
  std::string paths = environment("PATH");
  for (size_t begin = 0; begin < paths.size();) {
    size_t end = std::min(paths.find(':', begin), paths.size());
    std::string prefix = paths.substr(begin, end - begin) + "/../lib/python3*/";
    addMatches(folders, prefix + "site-packages/nvidia/*/lib");
    addMatches(folders, prefix + "dist-packages/nvidia/*/lib");
    begin = end + 1;
  }
  if (std::string home = environment("HOME"); !home.empty())
    addMatches(folders, home + "/.local/lib/python3*/site-packages/nvidia/*/lib");
  return folders;
}

std::string DriverTexts::text(CUresult status) const {
  const char *words = nullptr;
  if (cuGetErrorString(status, &words) == CUDA_SUCCESS && words)
    return words;
  return fmt::format("error {} of the driver", static_cast<int>(status));
}

std::string CublasLtTexts::text(cublasStatus_t status) const {
  const char *words = cublasLtGetStatusString(status);
  return words ? words : fmt::format("error {} of cuBLASLt", static_cast<int>(status));
}

std::string NcclTexts::text(ncclResult_t status) const {
  const char *words = ncclGetErrorString(status), *last = ncclGetLastError(/*communicator, unused=*/nullptr);
  std::string text = words ? words : fmt::format("error {} of NCCL", static_cast<int>(status));
  // The first text can be as vague as "unhandled system error"; the second text names the failed system call.
  return last && *last ? text + ": " + last : text;
}

// Version and error texts are resolved first, so that an old library is reported by its version, not by a missing
// symbol.
Driver::Driver(std::span<const std::string> names)
    : library("the NVIDIA driver", orElse(names, driverNames), /*folders=*/{}) {
#define DRIVER_TEXT(name, result, parameters)                                                                          \
  this->name = reinterpret_cast<decltype(this->name)>(library.resolve(#name));
#include "runtime/device/cuda/symbols.def"
  if (CUresult status = cuDriverGetVersion(&version); status != CUDA_SUCCESS)
    throw PlanError(
        fmt::format("the NVIDIA driver ({}) does not report its version: {}", library.path(), text(status)));
  if (version < oldestDriver)
    throw PlanError(fmt::format("the NVIDIA driver ({}) is for CUDA {}.{}, the plan needs one for CUDA {}.{} or newer",
                                library.path(), version / 1000, version % 1000 / 10, oldestDriver / 1000,
                                oldestDriver % 1000 / 10));
#define DRIVER(name, parameters)                                                                                       \
  this->name = {reinterpret_cast<decltype(this->name)::Function>(library.resolve(#name)), #name, this};
#include "runtime/device/cuda/symbols.def"
}

CublasLt::CublasLt(std::span<const std::string> names)
    : library("cuBLASLt", orElse(names, cublasLtNames(newestCuda * 1000)), libraryFolders()) {
#define CUBLASLT_TEXT(name, result, parameters)                                                                        \
  this->name = reinterpret_cast<decltype(this->name)>(library.resolve(#name));
#include "runtime/device/cuda/symbols.def"
  version = cublasLtGetVersion();
  if (version < oldestCublasLt)
    throw PlanError(fmt::format("cuBLASLt ({}) has version {}, the plan needs {} or newer", library.path(), version,
                                oldestCublasLt));
#define CUBLASLT(name, parameters)                                                                                     \
  this->name = {reinterpret_cast<decltype(this->name)::Function>(library.resolve(#name)), #name, this};
#include "runtime/device/cuda/symbols.def"
}

Nccl::Nccl(std::span<const std::string> names) : library("NCCL", withNcclSettings(names), libraryFolders()) {
#define NCCL_TEXT(name, result, parameters) this->name = reinterpret_cast<decltype(this->name)>(library.resolve(#name));
#include "runtime/device/cuda/symbols.def"
  if (ncclResult_t status = ncclGetVersion(&version); status != ncclSuccess)
    throw PlanError(fmt::format("NCCL ({}) does not report its version: {}", library.path(), text(status)));
  if (version < oldestNccl)
    throw PlanError(fmt::format("NCCL ({}) has version {}, the plan needs {} or newer", library.path(),
                                versionText(version), versionText(oldestNccl)));
#define NCCL(name, parameters)                                                                                         \
  this->name = {reinterpret_cast<decltype(this->name)::Function>(library.resolve(#name)), #name, this};
#include "runtime/device/cuda/symbols.def"
}

} // namespace espalier::rt::cuda
