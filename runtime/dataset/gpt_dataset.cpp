// A read visits the documents between two sample starts. Consecutive samples share one token, so a sample ends one
// token past the start of the next sample.
#include "runtime/dataset/gpt_dataset.h"

#include "messages/data_error.h"
#include "runtime/dataset/index_cache.h"
#include "runtime/dataset/loss_mask.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

constexpr int64_t mostTokensLookedAt = 1 << 16;

GptIndexRequest requestFor(const TokenSource &source, const DatasetOptions &options) {
  auto [first, end] = splitRange(options.splitWeights, options.split, source.sequenceCount());
  if (first == end)
    throw DataError(source.name(), fmt::format("split {} of \"{}\" holds none of {} sequences; "
                                               "give it more weight or the file more documents",
                                               splitName(options.split), options.splitWeights, source.sequenceCount()));
  GptIndexRequest request;
  request.firstSequence = first;
  request.endSequence = end;
  request.seqLength = options.seqLength;
  request.samples = options.samples;
  request.seed = options.seed;
  request.keepLastPartial = options.keepLastPartial && options.split == Split::valid;
  return request;
}

DataError outsideVocabulary(const TokenSource &source, int32_t token, const std::string &where, int64_t vocabSize) {
  return {source.name(), fmt::format("token {} {} is outside the vocabulary of {}; was the text tokenized with another "
                                     "one? If not, compile with --set model.model_config.vocab_size=N of at least {}",
                                     token, where, vocabSize, int64_t(token) + 1)};
}

/// Checks the first document against the vocabulary before the run starts. A dataset for a larger vocabulary usually
/// shows this in its end-of-document token. Other tokens are checked when they are read.
void checkFirstDocument(const TokenSource &source, int64_t first, int64_t vocabSize) {
  int64_t length = source.sequenceLength(first);
  std::vector<int32_t> tokens(std::min<int64_t>(length, mostTokensLookedAt));
  source.read(first, length - static_cast<int64_t>(tokens.size()), tokens);
  for (int32_t token : tokens)
    if (token >= vocabSize)
      throw outsideVocabulary(source, token, fmt::format("in sequence {}", first), vocabSize);
}

} // namespace

GptDataset::GptDataset(std::shared_ptr<const TokenSource> tokens, std::shared_ptr<const TokenSource> lossMask,
                       const DatasetOptions &options)
    : Dataset(options), source(std::move(tokens)), mask(std::move(lossMask)) {
  if (mask)
    requireSameSequences(*source, *mask);
  GptIndexRequest request = requestFor(*source, options);
  if (options.vocabSize > 0)
    checkFirstDocument(*source, request.firstSequence, options.vocabSize);
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
  if (options().vocabSize == 0)
    return;
  auto bad = std::ranges::find_if(out.first(filled), [this](int32_t t) { return t >= options().vocabSize; });
  if (bad == out.begin() + filled)
    return;
  int64_t sequence = index->document[index->sample[index->shuffle[i]].position];
  throw outsideVocabulary(*source, *bad, fmt::format("in sample {} (near sequence {})", i, sequence),
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
