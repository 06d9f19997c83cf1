// Control groups: a limit applies to all processes of a group and of its subgroups, so every folder from the process's
// own up to the root counts. In a container, /proc/self/cgroup may contain host paths that are not visible; then only
// the mounted root is checked.
#include "format/free_memory.h"

#include "messages/counted.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sstream>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

/// Returns the number in a file, or nothing if the file is missing or contains "max".
std::optional<uint64_t> readNumber(const Path &file) {
  std::ifstream stream(file);
  uint64_t number = 0;
  return stream >> number ? std::optional(number) : std::nullopt;
}

/// Returns the number after `key` in lines of the form "key number" or "key: number kB".
std::optional<uint64_t> readField(const Path &file, const std::string &key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string name, unit;
    uint64_t number = 0;
    if (words >> name >> number && name == key)
      return words >> unit && unit == "kB" ? number * 1024 : number;
  }
  return std::nullopt;
}

void lower(FreeMemory &least, uint64_t bytes, const std::string &source) {
  if (bytes < least.bytes)
    least = {bytes, source};
}

/// The file names of one version of control groups.
struct GroupFiles {
  const char *folder, *limit, *usage, *droppable;
};
constexpr GroupFiles version1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file"};
constexpr GroupFiles version2 = {"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

void lowerToGroup(FreeMemory &least, const Path &root, const GroupFiles &files, const Path &group) {
  Path folder = root / files.folder / group.relative_path();
  std::optional<uint64_t> limit = readNumber(folder / files.limit), usage = readNumber(folder / files.usage);
  if (!limit || !usage)
    return;
  uint64_t taken = *usage - std::min(*usage, readField(folder / "memory.stat", files.droppable).value_or(0));
  lower(least, *limit - std::min(*limit, taken),
        fmt::format("the limit of {} bytes in /{}", *limit, (folder / files.limit).lexically_relative(root).string()));
}

void lowerToGroups(FreeMemory &least, const Path &root, const GroupFiles &files, Path group) {
  for (;; group = group.parent_path()) {
    lowerToGroup(least, root, files, group);
    if (group == group.parent_path())
      return;
  }
}

} // namespace

FreeMemory freeMemory(const Path &root) {
  FreeMemory least;
  if (std::optional<uint64_t> available = readField(root / "proc/meminfo", "MemAvailable:"))
    lower(least, *available, "MemAvailable of /proc/meminfo");
  // Lines have the form NUMBER:CONTROLLERS:PATH. In version 2, CONTROLLERS is empty.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,")
      lowerToGroups(least, root, version2, line.substr(second + 1));
    else if (controllers.find(",memory,") != std::string::npos)
      lowerToGroups(least, root, version1, line.substr(second + 1));
  }
  return least;
}

std::string gigabytes(uint64_t bytes) { return fmt::format("{:.2f} GB", bytes / 1073741824.0); }

std::string describeLack(uint64_t need, int ranks, uint64_t largest, const FreeMemory &free) {
  return fmt::format(
      "the plan needs {} of memory for its {} on this host (up to {} each), {} are free ({}); run it on a "
      "larger machine, or compile it for less: fewer layers, a smaller micro-batch, more recompute",
      gigabytes(need), counted(ranks, "rank"), gigabytes(largest), gigabytes(free.bytes), free.source);
}

} // namespace espalier::rt
