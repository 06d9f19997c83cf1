// Megatron's GPTDataset: samples of seqLength + 1 tokens cut from shuffled documents, read in
// shuffled order.
#pragma once

#include "runtime/data/dataset.h"
#include "runtime/data/gpt_index.h"

namespace espalier::rt {

class GptDataset final : public Dataset {
public:
  /// Takes the sequences that options.split leaves of `source`. Throws DataError when they hold no
  /// sample.
  GptDataset(std::shared_ptr<const TokenSource> source, const DatasetOptions &options);

  int64_t sampleCount() const override { return index->sampleCount(); }
  void readTokens(int64_t i, std::span<int32_t> out) const override;
  const GptIndex &indexArrays() const { return *index; }

private:
  std::shared_ptr<const TokenSource> source;
  std::unique_ptr<GptIndex> index;
};

} // namespace espalier::rt
