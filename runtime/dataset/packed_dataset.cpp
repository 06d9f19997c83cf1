#include "runtime/dataset/packed_dataset.h"

#include "messages/data_error.h"
#include "runtime/dataset/loss_mask.h"
#include "runtime/dataset/numpy_random.h"
#include "runtime/dataset/source_checks.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>

namespace espalier::rt {

PackedDataset::PackedDataset(std::shared_ptr<const TokenSource> tokens, std::shared_ptr<const TokenSource> lossMask,
                             const DatasetOptions &options)
    : Dataset(options), source(std::move(tokens)), mask(std::move(lossMask)) {
  if (mask)
    requireSameSequences(*source, *mask);
  constexpr int64_t longest = std::numeric_limits<int32_t>::max() - 1;
  if (seqLength() < 1 || seqLength() > longest || source->sequenceCount() > longest)
    throw DataError(source->name(), fmt::format("{} sequences and a sequence length of {}, want at most {} of both",
                                                source->sequenceCount(), seqLength(), longest));
  auto [first, end] = sequencesOf(*source, options);
  std::vector<int32_t> order(end - first);
  std::iota(order.begin(), order.end(), static_cast<int32_t>(first));
  LegacyRandom(options.seed).shuffle(std::span(order));
  std::vector<PackedPiece> pieces;
  for (int32_t sequence : order)
    cutSequence(sequence, source->sequenceLength(sequence), seqLength(), pieces);
  if (std::ssize(pieces) < options.balancedBatch)
    throw DataError(source->name(), fmt::format("{} documents of two tokens and more, want at least one for each of "
                                                "the {} samples of a step; leave `pack: balanced` out or give a "
                                                "smaller global batch",
                                                pieces.size(), options.balancedBatch));
  rows = packBalanced(std::move(pieces), seqLength(), options.balancedBatch, options.seed);
}

void PackedDataset::readRow(const TokenSource &from, int64_t i, int32_t padding, std::span<int32_t> out) const {
  if (i < 0 || i >= sampleCount())
    throw DataError(source->name(), fmt::format("sample {} asked for, there are {}", i, sampleCount()));
  std::ranges::fill(out, padding);
  size_t filled = 0;
  for (const PackedPiece &piece : rows.row(i)) {
    if (piece.sequence >= 0)
      from.read(piece.sequence, piece.offset, out.subspan(filled, piece.length));
    filled += piece.length;
  }
}

void PackedDataset::readTokens(int64_t i, std::span<int32_t> out) const {
  readRow(*source, i, /*padding=*/-1, out);
  requireVocabulary(*source, out, i, std::ranges::max(rows.row(i), {}, &PackedPiece::sequence).sequence,
                    options().vocabSize);
}

bool PackedDataset::readLossMask(int64_t i, std::span<int32_t> out) const {
  if (!mask)
    return false;
  readRow(*mask, i, /*padding=*/0, out);
  requireMaskValues(*mask, std::ranges::max(rows.row(i), {}, &PackedPiece::sequence).sequence, out);
  return true;
}

void PackedDataset::fillBorders(int64_t i, std::span<const int32_t> /*text*/, const SampleView &out) const {
  int32_t start = 0;
  auto last = static_cast<int32_t>(seqLength());
  auto fill = [&](int32_t from, int32_t to) { // positions of one document
    for (int32_t at = from; at < std::min(to, last); ++at) {
      if (!out.positions.empty())
        out.positions[at] = options().resetPositionIds ? at - from : at;
      if (!out.visibleFrom.empty())
        out.visibleFrom[at] = options().resetAttentionMask ? from : 0;
      if (!out.lossWeights.empty() && at + 1 == to)
        out.lossWeights[at] = 0;
    }
  };
  for (const PackedPiece &piece : rows.row(i)) {
    for (int32_t at = 0; piece.sequence < 0 && at < piece.length; ++at)
      fill(start + at, start + at + 1);
    if (piece.sequence >= 0)
      fill(start, start + piece.length);
    start += piece.length;
  }
}

} // namespace espalier::rt
