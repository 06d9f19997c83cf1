#include "tools/count_devices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace espalier {
namespace {

/// Files /dev/nvidia0, nvidia1, ...; a container may have some of them only.
int deviceFiles() {
  int count = 0;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator("/dev", error)) {
    std::string name = entry.path().filename().string();
    count += name.starts_with("nvidia") && name.size() > 6 &&
             std::all_of(name.begin() + 6, name.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  return count;
}

} // namespace

int countDevices(const rt::pb::Plan &plan) {
  if (plan.target() != "cuda")
    return 0;
  if (const char *emulated = std::getenv("ESPALIER_EMULATOR_DEVICES"))
    return std::atoi(emulated);
  int count = deviceFiles();
  const char *visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible || !*visible)
    return count;
  std::string list = visible;
  return std::min(count, 1 + static_cast<int>(std::count(list.begin(), list.end(), ',')));
}

} // namespace espalier
