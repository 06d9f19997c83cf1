// Megatron's mock documents, for runs that need shapes but no text: 100,000 documents of 1 to 4095
// tokens that count upwards and end with the end-of-document token.
#pragma once

#include "runtime/data/token_source.h"

#include <vector>

namespace espalier::rt {

class MockSource final : public TokenSource {
public:
  /// Tokens stay below `vocabSize` (at least 1); `eodToken` below 0 takes the last id.
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
