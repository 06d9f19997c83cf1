#include "runtime/memory_check.h"

#include "runtime/status.h"

#include <algorithm>

namespace espalier::rt {
namespace {

/// The memory of the ranks of a plan.
struct Need {
  uint64_t all = 0, largest = 0; ///< of any ranks of one host, and of the largest rank
};

Need needOf(const Program &program, int threadsPerRank, int hostRanks) {
  const Mesh &mesh = program.mesh();
  int ranksPerStage = mesh.ranks() / mesh.count(PP);
  Need need;
  for (const pb::Stage &stage : program.plan().stages()) {
    uint64_t bytes = program.backend().hostBytes(stage, threadsPerRank);
    need.all += bytes * ranksPerStage;
    need.largest = std::max(need.largest, bytes);
  }
  need.all = std::min(need.all, need.largest * hostRanks);
  return need;
}

} // namespace

uint64_t neededMemory(const Program &program, int threadsPerRank, int hostRanks) {
  return needOf(program, threadsPerRank, hostRanks).all;
}

void requireMemory(const Program &program, int threadsPerRank, const FreeMemory &free, int hostRanks) {
  Need need = needOf(program, threadsPerRank, hostRanks);
  if (need.all > free.bytes)
    throw MemoryError(describeLack(need.all, hostRanks, need.largest, free));
}

} // namespace espalier::rt
