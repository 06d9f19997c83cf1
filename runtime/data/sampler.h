// Which samples a step reads. The only state is the number of samples consumed since the run began, so a run may resume
// with another number of ranks or another micro batch and still reads the same order: step k of global batch B takes
// places consumed to consumed + B - 1 of the order, whoever reads them.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::rt {

/// `single`: the set's own order, and past its end the same again. `cyclic`: each epoch in another order.
enum class SampleOrder { single, cyclic };

/// The order of the samples of a run.
///
/// The cyclic order is Megatron's (its random sampler without data sharding) and PyTorch's: epoch e reads
/// torch.randperm(n) of a generator seeded with e, where n is the sample count without the last incomplete global
/// batch.
class Sampler {
public:
  /// Throws DataError if a cyclic order has not one whole global batch or more than 2^32 - 1 samples.
  Sampler(SampleOrder order, int64_t sampleCount, int64_t globalBatch);

  /// The sample at a place of the order, from 0. Keeps one epoch's permutation, 4 bytes a sample.
  int64_t at(int64_t place);

private:
  SampleOrder order;
  int64_t epochSize;
  int64_t epoch = -1; ///< of `permutation`
  std::vector<uint32_t> permutation;
};

/// One rank's place among those that split a global batch.
struct BatchShare {
  int64_t microBatch = 1; // samples one rank takes at a time
  int64_t dpRank = 0;
  int64_t dpSize = 1;

  /// Where micro batch `step` begins, as Megatron deals it: the global batch falls into chunks of microBatch * dpSize
  /// places, and rank r takes [r * microBatch, (r + 1) * microBatch) of chunk `step`. Example: microBatch 2, dpSize 2,
  /// consumed 0, step 1: rank 0 reads places 4 and 5, rank 1 reads 6 and 7.
  int64_t firstPlace(int64_t consumed, int64_t step) const { return consumed + (step * dpSize + dpRank) * microBatch; }
};

} // namespace espalier::rt
