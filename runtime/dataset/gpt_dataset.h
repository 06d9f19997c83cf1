// Megatron's GPTDataset: samples of seqLength + 1 tokens from shuffled documents, in shuffled order.
#pragma once

#include "runtime/dataset/dataset.h"
#include "runtime/dataset/gpt_index.h"

namespace espalier::rt {

/// A dataset of samples cut from documents.
class GptDataset final : public Dataset {
public:
  /// Uses the sequences of `source` that belong to options.split. Throws DataError if they hold no sample.
  GptDataset(std::shared_ptr<const TokenSource> source, const DatasetOptions &options);

  int64_t sampleCount() const override { return index->sampleCount(); }
  void readTokens(int64_t i, std::span<int32_t> out) const override;
  /// Returns the index arrays.
  const GptIndex &indexArrays() const { return *index; }

private:
  std::shared_ptr<const TokenSource> source;
  std::unique_ptr<GptIndex> index;
};

} // namespace espalier::rt
