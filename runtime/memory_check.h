// Checks that the machine has the memory for a plan before anything is allocated. The kernel overcommits memory and
// would later kill whole processes.
#pragma once

#include "format/free_memory.h"
#include "runtime/program.h"

#include <cstdint>

namespace espalier::rt {

/// Returns the host memory in bytes that any `hostRanks` ranks of the plan may need.
uint64_t neededMemory(const Program &program, int threadsPerRank, int hostRanks);

/// Throws MemoryError with both sizes if any `hostRanks` ranks of the plan may need more than `free`. The launcher
/// decides which ranks run on this host.
void requireMemory(const Program &program, int threadsPerRank, const FreeMemory &free, int hostRanks);

} // namespace espalier::rt
