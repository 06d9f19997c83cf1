// Lengths are numpy's default_rng(0).integers(1, 4096, 100000); token k of a document is (k + 1)
// mod vocabulary.
#include "runtime/dataset/mock_source.h"

#include "messages/data_error.h"
#include "runtime/dataset/numpy_random.h"

#include <fmt/format.h>

namespace espalier::rt {

MockSource::MockSource(int64_t vocabSize, int32_t eodToken)
    : lengths(defaultRngIntegers(0, 1, 4096, 100000)), vocabSize(vocabSize),
      eod(eodToken < 0 ? static_cast<int32_t>(vocabSize - 1) : eodToken) {
  if (vocabSize < 1)
    throw DataError(kind, "mock data needs a vocabulary size above 0");
  if (eod >= vocabSize)
    throw DataError(kind, fmt::format("end-of-document token {} is outside the vocabulary of {}", eod, vocabSize));
}

void MockSource::read(int64_t i, int64_t offset, std::span<int32_t> out) const {
  int64_t last = lengths[i] - 1;
  for (size_t k = 0; k < out.size(); ++k) {
    int64_t place = offset + static_cast<int64_t>(k);
    out[k] = place == last ? eod : static_cast<int32_t>((place + 1) % vocabSize);
  }
}

std::string MockSource::fingerprint() const { return fmt::format("mock, {} sequences", lengths.size()); }

} // namespace espalier::rt
