// Selects the samples of a step. The only state is the number of samples consumed since the run began. So a run may
// resume with another number of ranks or another micro-batch size and still reads the same order. Step k of global
// batch B reads positions consumed to consumed + B - 1, whichever ranks read them.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::rt {

/// `single`: the order of the dataset, repeated at its end. `cyclic`: another order in each epoch.
enum class SampleOrder { single, cyclic };

/// The order of the samples of a run.
///
/// The cyclic order is Megatron's (its random sampler without data sharding) and PyTorch's: epoch e reads
/// torch.randperm(n) of a generator seeded with e, where n is the sample count without the last incomplete global
/// batch.
class Sampler {
public:
  /// Creates an order. Throws DataError if a cyclic order has less than one global batch, or more than 2^32 - 1
  /// samples.
  Sampler(SampleOrder order, int64_t sampleCount, int64_t globalBatch);

  /// Returns the sample at a position of the order, from 0. Keeps the permutation of one epoch, 4 bytes per sample.
  int64_t at(int64_t place);

private:
  SampleOrder order;
  int64_t epochSize;
  int64_t epoch = -1; ///< the epoch of `permutation`
  std::vector<uint32_t> permutation;
};

/// One rank's share of a global batch.
struct BatchShare {
  int64_t microBatch = 1; // samples per micro-batch of one rank
  int64_t dpRank = 0;
  int64_t dpSize = 1;

  /// Returns the first position of micro-batch `step`, as in Megatron. The global batch consists of chunks of
  /// microBatch * dpSize positions, and rank r reads [r * microBatch, (r + 1) * microBatch) of chunk `step`. Example:
  /// microBatch 2, dpSize 2, consumed 0, step 1: rank 0 reads positions 4 and 5, rank 1 reads 6 and 7.
  int64_t firstPlace(int64_t consumed, int64_t step) const { return consumed + (step * dpSize + dpRank) * microBatch; }
};

} // namespace espalier::rt
