// The memory of this machine that is free.
#pragma once

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

/// Returns the error text for a plan whose `ranks` ranks on this host need more memory than is free. The largest rank
/// needs `largest` bytes.
std::string describeLack(uint64_t need, int ranks, uint64_t largest, const FreeMemory &free);

} // namespace espalier::rt
