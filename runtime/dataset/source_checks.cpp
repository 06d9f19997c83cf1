#include "runtime/dataset/source_checks.h"

#include "messages/data_error.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

constexpr int64_t mostTokensLookedAt = 1 << 16;

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

std::pair<int64_t, int64_t> sequencesOf(const TokenSource &source, const DatasetOptions &options) {
  auto [first, end] = splitRange(options.splitWeights, options.split, source.sequenceCount());
  if (first == end)
    throw DataError(source.name(), fmt::format("split {} of \"{}\" holds none of {} sequences; "
                                               "give it more weight or the file more documents",
                                               splitName(options.split), options.splitWeights, source.sequenceCount()));
  if (options.vocabSize > 0)
    checkFirstDocument(source, first, options.vocabSize);
  return {first, end};
}

void requireVocabulary(const TokenSource &source, std::span<const int32_t> tokens, int64_t sample, int64_t sequence,
                       int64_t vocabSize) {
  auto bad = std::ranges::find_if(tokens, [vocabSize](int32_t token) { return token >= vocabSize; });
  if (vocabSize > 0 && bad != tokens.end())
    throw outsideVocabulary(source, *bad, fmt::format("in sample {} (near sequence {})", sample, sequence), vocabSize);
}

} // namespace espalier::rt
