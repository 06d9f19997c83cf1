// Samples of whole documents with balanced attention work (packing.h).
#pragma once

#include "runtime/dataset/dataset.h"
#include "runtime/dataset/packing.h"
#include "runtime/dataset/token_source.h"

namespace espalier::rt {

/// A dataset of packed documents: one epoch, in an order that the seed determines. A document is a sequence of the
/// source. The last token of a document has no loss, because the token after it belongs to another document.
class PackedDataset final : public Dataset {
public:
  /// Packs the sequences of options.split for steps of options.balancedBatch rows. `mask` is the loss mask of the same
  /// sequences, or null. Throws DataError if there are fewer documents than rows in a step, or if a sequence and its
  /// mask differ in length.
  PackedDataset(std::shared_ptr<const TokenSource> source, std::shared_ptr<const TokenSource> mask,
                const DatasetOptions &options);

  int64_t sampleCount() const override { return rows.count(); }
  void readTokens(int64_t i, std::span<int32_t> out) const override;
  bool readLossMask(int64_t i, std::span<int32_t> out) const override;
  const PackedRows *packedRows() const override { return &rows; }

protected:
  void fillBorders(int64_t i, std::span<const int32_t> text, const SampleView &out) const override;

private:
  void readRow(const TokenSource &from, int64_t i, int32_t padding, std::span<int32_t> out) const;

  std::shared_ptr<const TokenSource> source, mask;
  PackedRows rows;
};

} // namespace espalier::rt
