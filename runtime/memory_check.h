// Checks that the machine has the memory for a plan before anything is allocated. The kernel overcommits memory and
// would later kill whole processes.
#pragma once

#include "runtime/program.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier::rt {

/// The memory that can be allocated, and the source of this limit.
struct FreeMemory {
  uint64_t bytes = UINT64_MAX;
  std::string source; ///< "MemAvailable of /proc/meminfo" or the file of a control group's limit
};

/// Returns the minimum of the system's available memory and the free memory under the limits of this process's control
/// groups (version 1 or 2, with all parents). Page cache that can be dropped counts as free. Files are read under
/// `root`; missing files set no limit.
FreeMemory freeMemory(const std::filesystem::path &root = "/");

/// Formats a size of memory: "1.50 GB".
std::string gigabytes(uint64_t bytes);

/// Returns the host memory in bytes that any `hostRanks` ranks of the plan may need.
uint64_t neededMemory(const Program &program, int threadsPerRank, int hostRanks);

/// Throws MemoryError with both sizes if any `hostRanks` ranks of the plan may need more than `free`. The launcher
/// decides which ranks run on this host.
void requireMemory(const Program &program, int threadsPerRank, const FreeMemory &free, int hostRanks);

} // namespace espalier::rt
