// Megatron's mock documents, for runs that need no real text: 100,000 documents of 1 to 4095 ascending tokens with an
// end-of-document token.
#pragma once

#include "runtime/dataset/token_source.h"

#include <vector>

namespace espalier::rt {

/// The mock documents as a token source.
class MockSource final : public TokenSource {
public:
  /// Creates the documents. Tokens are below `vocabSize` (at least 1). A negative `eodToken` selects the last id.
  MockSource(int64_t vocabSize, int32_t eodToken);

  int64_t sequenceCount() const override { return static_cast<int64_t>(lengths.size()); }
  int64_t sequenceLength(int64_t i) const override { return lengths[i]; }
  void read(int64_t i, int64_t offset, std::span<int32_t> out) const override;
  const std::string &name() const override { return kind; }
  std::string fingerprint() const override;

private:
  std::string kind = "mock";
  std::vector<int32_t> lengths;
  int64_t vocabSize;
  int32_t eod;
};

} // namespace espalier::rt
