// PyTorch seeds the Mersenne twister as NumPy's legacy generator does, but shuffles from the front and uses remainders.
#include "runtime/dataset/sampler.h"

#include "messages/data_error.h"
#include "runtime/dataset/numpy_random.h"

#include <fmt/format.h>
#include <limits>
#include <numeric>

namespace espalier::rt {

Sampler::Sampler(SampleOrder order, int64_t sampleCount, int64_t globalBatch) : order(order), epochSize(sampleCount) {
  if (order == SampleOrder::single)
    return;
  epochSize -= sampleCount % globalBatch;
  if (epochSize == 0 || epochSize > std::numeric_limits<uint32_t>::max())
    throw DataError("cyclic order", fmt::format("{} samples, want at least one global batch of {} and at most {}",
                                                sampleCount, globalBatch, std::numeric_limits<uint32_t>::max()));
}

int64_t Sampler::at(int64_t place) {
  int64_t within = place % epochSize;
  if (order == SampleOrder::single)
    return within;
  if (epoch != place / epochSize) {
    epoch = place / epochSize;
    permutation.resize(epochSize);
    std::iota(permutation.begin(), permutation.end(), 0U);
    LegacyRandom random(static_cast<uint32_t>(epoch));
    for (int64_t i = 0; i + 1 < epochSize; ++i)
      std::swap(permutation[i], permutation[i + random.next() % (epochSize - i)]);
  }
  return permutation[within];
}

} // namespace espalier::rt
