#include "format/host_machine.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <thread>
#include <unistd.h>

namespace espalier::rt {

std::string processorName() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with("model name")) {
      size_t colon = line.find(':');
      std::string name = colon == std::string::npos ? "" : line.substr(std::min(colon + 2, line.size()));
      return name.substr(0, 100);
    }
  return "unknown processor";
}

int machineCores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

std::string machineName() { return fmt::format("{}, {} cores", processorName(), machineCores()); }

double machineMemory() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
}

std::filesystem::path cacheFolder() {
  auto valueOf = [](const char *name) {
    const char *value = std::getenv(name);
    return std::filesystem::path(value ? value : "");
  };
  std::filesystem::path cache = valueOf("XDG_CACHE_HOME"), home = valueOf("HOME");
  if (cache.is_relative() && home.is_relative())
    return {};
  return (cache.is_absolute() ? cache : home / ".cache") / "espalier";
}

std::filesystem::path measuredMachineFile() {
  std::filesystem::path folder = cacheFolder();
  return folder.empty() ? folder : folder / "this_machine.yaml";
}

} // namespace espalier::rt
