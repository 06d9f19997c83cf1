// Which samples a step reads. The only state is the number of samples consumed since the run began,
// so a run may resume with another number of ranks or another micro batch and still reads the same
// order: step k of global batch B takes samples consumed to consumed + B - 1, whoever reads them.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::rt {

/// The samples of one global batch, in global order. Past the end of the set they start over at its
/// beginning: consumed 8, batch 4 of 10 samples gives 8, 9, 0, 1.
std::vector<int64_t> sampleIndices(int64_t consumed, int64_t globalBatch, int64_t sampleCount);

/// One rank's place among those that split a global batch.
struct BatchShare {
  int64_t microBatch = 1; // samples one rank takes at a time
  int64_t dpRank = 0;
  int64_t dpSize = 1;
};

/// Micro batch `step` of one rank, as Megatron deals it: the global batch falls into chunks of
/// microBatch * dpSize samples, and rank r takes [r * microBatch, (r + 1) * microBatch) of chunk
/// `step`. Example: microBatch 2, dpSize 2, consumed 0, step 1: rank 0 reads 4, 5 and rank 1 reads
/// 6, 7.
std::vector<int64_t> shareIndices(int64_t consumed, const BatchShare &share, int64_t step,
                                  int64_t sampleCount);

} // namespace espalier::rt
