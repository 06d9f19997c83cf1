// Whether the machine has the memory for a plan: asked before anything is allocated, since the system grants more than
// it has and then ends whole processes.
#pragma once

#include "runtime/program.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier::rt {

/// What can be allocated, and who says so.
struct FreeMemory {
  uint64_t bytes = UINT64_MAX;
  std::string source; ///< "MemAvailable of /proc/meminfo" or the file of a control group's limit
};

/// The least of what the system has available and of what the limits of this process's control groups (version 1 or 2,
/// with those above them) leave; pages of files do not count as taken where they can be dropped. Files are looked for
/// under `root`; those that are missing limit nothing.
FreeMemory freeMemory(const std::filesystem::path &root = "/");

/// Throws MemoryError, with both figures, where the plan's ranks on this host need more than that. `hostRanks`: how
/// many they are; whichever they are, as that depends on the launcher.
void requireMemory(const Program &program, int threadsPerRank, const FreeMemory &free, int hostRanks);

} // namespace espalier::rt
