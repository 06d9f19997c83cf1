// A read visits the documents between two sample starts. Consecutive samples share one token, so a sample ends one
// token past the start of the next sample.
#include "runtime/dataset/gpt_dataset.h"

#include "messages/data_error.h"
#include "runtime/dataset/index_cache.h"
#include "runtime/dataset/loss_mask.h"
#include "runtime/dataset/source_checks.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

GptIndexRequest requestFor(const TokenSource &source, const DatasetOptions &options) {
  auto [first, end] = sequencesOf(source, options);
  GptIndexRequest request;
  request.firstSequence = first;
  request.endSequence = end;
  request.seqLength = options.seqLength;
  request.samples = options.samples;
  request.seed = options.seed;
  request.keepLastPartial = options.keepLastPartial && options.split == Split::valid;
  return request;
}

} // namespace

GptDataset::GptDataset(std::shared_ptr<const TokenSource> tokens, std::shared_ptr<const TokenSource> lossMask,
                       const DatasetOptions &options)
    : Dataset(options), source(std::move(tokens)), mask(std::move(lossMask)) {
  if (mask)
    requireSameSequences(*source, *mask);
  GptIndexRequest request = requestFor(*source, options);
  index = options.cacheFolder.empty() ? buildGptIndex(*source, request)
                                      : loadOrBuildGptIndex(*source, request, options.cacheFolder);
}

size_t GptDataset::readSample(const TokenSource &from, int64_t i, std::span<int32_t> out) const {
  if (i < 0 || i >= sampleCount())
    throw DataError(source->name(), fmt::format("sample {} asked for, there are {}", i, sampleCount()));
  uint32_t chosen = index->shuffle[i];
  SampleStart begin = index->sample[chosen], end = index->sample[chosen + 1];
  size_t filled = 0;
  for (int64_t position = begin.position; position <= end.position; ++position) {
    int64_t sequence = index->document[position];
    int64_t first = position == begin.position ? begin.offset : 0;
    int64_t last = position == end.position ? end.offset + 1 : source->sequenceLength(sequence);
    int64_t count = std::min<int64_t>(last - first, out.size() - filled);
    if (count <= 0)
      continue;
    from.read(sequence, first, out.subspan(filled, count));
    filled += count;
  }
  return filled;
}

void GptDataset::readTokens(int64_t i, std::span<int32_t> out) const {
  size_t filled = readSample(*source, i, out);
  std::ranges::fill(out.subspan(filled), -1);
  requireVocabulary(*source, out.first(filled), i, index->document[index->sample[index->shuffle[i]].position],
                    options().vocabSize);
}

bool GptDataset::readLossMask(int64_t i, std::span<int32_t> out) const {
  if (!mask)
    return false;
  size_t filled = readSample(*mask, i, out);
  std::ranges::fill(out.subspan(filled), 0);
  requireMaskValues(*mask, index->document[index->sample[index->shuffle[i]].position], out.first(filled));
  return true;
}

} // namespace espalier::rt
