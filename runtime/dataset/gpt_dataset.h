// Megatron's GPTDataset: samples of seqLength + 1 tokens from shuffled documents, in shuffled order.
#pragma once

#include "runtime/dataset/dataset.h"
#include "runtime/dataset/gpt_index.h"

namespace espalier::rt {

/// A dataset of samples cut from documents.
class GptDataset final : public Dataset {
public:
  /// Uses the sequences of `source` that belong to options.split. `mask` is the loss mask of the same sequences, or
  /// null. Throws DataError if there is no sample, or if a sequence and its mask differ in length.
  GptDataset(std::shared_ptr<const TokenSource> source, std::shared_ptr<const TokenSource> mask,
             const DatasetOptions &options);

  int64_t sampleCount() const override { return index->sampleCount(); }
  void readTokens(int64_t i, std::span<int32_t> out) const override;
  bool readLossMask(int64_t i, std::span<int32_t> out) const override;
  /// Returns the index arrays.
  const GptIndex &indexArrays() const { return *index; }

private:
  /// Reads sample i of `from`, which has the sequences of `source`. Returns the number of tokens of the sample.
  size_t readSample(const TokenSource &from, int64_t i, std::span<int32_t> out) const;

  std::shared_ptr<const TokenSource> source, mask;
  std::unique_ptr<GptIndex> index;
};

} // namespace espalier::rt
