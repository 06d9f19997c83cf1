// One RandomState generates all shuffles in a fixed order: documents, documents of a separate last epoch, samples,
// samples of that epoch. Another order would give other batches than Megatron's.
#include "runtime/dataset/gpt_index.h"

#include "messages/data_error.h"
#include "runtime/dataset/numpy_random.h"

#include <fmt/format.h>
#include <limits>
#include <numeric>

namespace espalier::rt {

namespace {

constexpr int64_t largestI32 = std::numeric_limits<int32_t>::max();

std::vector<int32_t> shuffledDocuments(const GptIndexRequest &request, const EpochPlan &plan, LegacyRandom &random) {
  int64_t perEpoch = request.endSequence - request.firstSequence;
  std::vector<int32_t> documents(perEpoch * plan.epochs);
  for (int64_t epoch = 0; epoch < plan.epochs; ++epoch)
    std::iota(documents.begin() + epoch * perEpoch, documents.begin() + (epoch + 1) * perEpoch,
              static_cast<int32_t>(request.firstSequence));
  std::span<int32_t> all(documents);
  if (!plan.separateFinalEpoch) {
    random.shuffle(all);
    return documents;
  }
  random.shuffle(all.first(perEpoch * (plan.epochs - 1)));
  random.shuffle(all.last(perEpoch));
  return documents;
}

std::vector<SampleStart> findSampleStarts(const TokenSource &source, const GptIndexRequest &request,
                                          std::span<const int32_t> documents, int64_t samples) {
  std::vector<SampleStart> starts;
  starts.reserve(samples + 1);
  starts.push_back({0, 0});
  size_t position = 0;
  int64_t offset = 0;
  while (static_cast<int64_t>(starts.size()) <= samples) {
    int64_t wanted = request.seqLength + 1;
    while (true) {
      int64_t left = source.sequenceLength(documents[position]) - offset;
      if (left >= wanted) {
        offset += wanted - 1; // consecutive samples share one token
        break;
      }
      if (position + 1 == documents.size()) {
        // Only a kept partial sample reaches the end. It ends before the very last token.
        offset = source.sequenceLength(documents[position]) - 1;
        break;
      }
      wanted -= left;
      ++position;
      offset = 0;
    }
    starts.push_back({static_cast<int32_t>(position), static_cast<int32_t>(offset)});
  }
  return starts;
}

} // namespace

EpochPlan planEpochs(const std::string &name, const GptIndexRequest &request, int64_t tokensPerEpoch) {
  const int64_t seq = request.seqLength;
  if (seq < 1 || seq >= largestI32)
    throw DataError(name, fmt::format("sequence length {}, want 1 to {}", seq, largestI32 - 1));
  if (request.samples < 0 || request.samples > std::numeric_limits<uint32_t>::max() - 2)
    throw DataError(name, fmt::format("{} samples asked for, want 0 to {}", request.samples,
                                      std::numeric_limits<uint32_t>::max() - 2));
  if (tokensPerEpoch < 1)
    throw DataError(name, fmt::format("sequences {} to {} hold no token; give this split more "
                                      "weight or the file more documents",
                                      request.firstSequence, request.endSequence));
  EpochPlan plan;
  if (request.samples > 0)
    plan.epochs = request.samples * seq / tokensPerEpoch + 1; // the least n with n * tokens > samples * seq
  int64_t perEpoch = request.endSequence - request.firstSequence;
  if (plan.epochs > largestI32 / perEpoch)
    throw DataError(name, fmt::format("{} epochs of {} sequences are more than {} entries; ask for "
                                      "fewer samples",
                                      plan.epochs, perEpoch, largestI32));
  int64_t pairs = plan.epochs * tokensPerEpoch - 1;
  plan.sampleCount = request.keepLastPartial ? (pairs + seq - 1) / seq : pairs / seq;
  if (plan.sampleCount < 1 || plan.sampleCount > std::numeric_limits<uint32_t>::max() - 2)
    throw DataError(name, fmt::format("{} tokens give {} samples of {} tokens; want a shorter "
                                      "sequence or more text",
                                      plan.epochs * tokensPerEpoch, plan.sampleCount, seq + 1));
  if (plan.epochs > 1) {
    plan.samplesBeforeFinal = ((plan.epochs - 1) * tokensPerEpoch - 1) / seq;
    int64_t fromFinal = request.samples - plan.samplesBeforeFinal;
    int64_t oneEpoch = (tokensPerEpoch - 1) / seq;
    plan.separateFinalEpoch = fromFinal < static_cast<int64_t>(0.80 * oneEpoch);
  }
  return plan;
}

int64_t countTokens(const TokenSource &source, const GptIndexRequest &request) {
  int64_t tokens = 0;
  for (int64_t i = request.firstSequence; i < request.endSequence; ++i)
    tokens += source.sequenceLength(i);
  return tokens;
}

std::unique_ptr<GptIndex> buildGptIndex(const TokenSource &source, const GptIndexRequest &request) {
  EpochPlan plan = planEpochs(source.name(), request, countTokens(source, request));
  LegacyRandom random(request.seed);
  auto index = std::make_unique<GptIndex>();
  index->epochs = plan.epochs;
  index->separateFinalEpoch = plan.separateFinalEpoch;
  index->ownedDocument = shuffledDocuments(request, plan, random);
  index->ownedSample = findSampleStarts(source, request, index->ownedDocument, plan.sampleCount);
  index->ownedShuffle.resize(plan.sampleCount);
  std::iota(index->ownedShuffle.begin(), index->ownedShuffle.end(), 0U);
  std::span<uint32_t> order(index->ownedShuffle);
  size_t head = plan.separateFinalEpoch ? plan.samplesBeforeFinal : order.size();
  random.shuffle(order.first(head));
  random.shuffle(order.subspan(head));
  index->document = index->ownedDocument;
  index->sample = index->ownedSample;
  index->shuffle = index->ownedShuffle;
  return index;
}

} // namespace espalier::rt
