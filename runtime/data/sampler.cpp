// Plain arithmetic on the samples consumed; no state is kept.
#include "runtime/data/sampler.h"

namespace espalier::rt {

std::vector<int64_t> sampleIndices(int64_t consumed, int64_t globalBatch, int64_t sampleCount) {
  std::vector<int64_t> indices(globalBatch);
  for (int64_t k = 0; k < globalBatch; ++k)
    indices[k] = (consumed + k) % sampleCount;
  return indices;
}

std::vector<int64_t> shareIndices(int64_t consumed, const BatchShare &share, int64_t step,
                                  int64_t sampleCount) {
  int64_t first = consumed + (step * share.dpSize + share.dpRank) * share.microBatch;
  return sampleIndices(first, share.microBatch, sampleCount);
}

} // namespace espalier::rt
