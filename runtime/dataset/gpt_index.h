// The three index arrays of Megatron's GPTDataset, bit for bit: the order of documents (document), the start of each
// sample of seqLength + 1 tokens (sample), and the order of samples (shuffle).
//
// Example: documents of 3, 5 and 4 tokens, seqLength 4, one epoch, documents shuffled to 2, 0, 1. Samples start at (0,
// 0) and (1, 0) and end at (2, 1): 12 tokens give (12 - 1) / 4 = 2 samples, and consecutive samples share one token.
#pragma once

#include "runtime/dataset/token_source.h"
#include "runtime/files/mapped_file.h"

#include <memory>
#include <vector>

namespace espalier::rt {

/// The start of a sample: a position in the document array, and a token of that document.
struct SampleStart {
  int32_t position;
  int32_t offset;
};

/// The inputs that determine the three arrays.
struct GptIndexRequest {
  int64_t firstSequence = 0; // sequences [firstSequence, endSequence) belong to the split
  int64_t endSequence = 0;
  int64_t seqLength = 0;
  int64_t samples = 0; // number of samples; 0: one epoch
  uint32_t seed = 1234;
  bool keepLastPartial = false; // keep a last sample shorter than seqLength + 1 (validation only)
};

/// The arrays, owned or mapped from a cache.
struct GptIndex {
  std::span<const int32_t> document;   // sequence ids, epochs * sequences of them
  std::span<const SampleStart> sample; // one more than the number of samples
  std::span<const uint32_t> shuffle;   // a permutation of the samples
  int64_t epochs = 1;
  bool separateFinalEpoch = false;

  /// Returns the number of samples.
  int64_t sampleCount() const { return static_cast<int64_t>(shuffle.size()); }

  std::vector<int32_t> ownedDocument;
  std::vector<SampleStart> ownedSample;
  std::vector<uint32_t> ownedShuffle;
  std::vector<MappedFile> mapped;
};

/// The number of epochs that `request` needs at `tokensPerEpoch` tokens, and whether the last epoch is shuffled
/// separately.
struct EpochPlan {
  int64_t epochs = 1;
  bool separateFinalEpoch = false;
  int64_t samplesBeforeFinal = 0; // valid if separateFinalEpoch
  int64_t sampleCount = 0;
};

/// Plans the epochs. Throws DataError naming `name` if the request is empty or exceeds the 32-bit arrays.
EpochPlan planEpochs(const std::string &name, const GptIndexRequest &request, int64_t tokensPerEpoch);

/// Returns the number of tokens in the request's sequences.
int64_t countTokens(const TokenSource &source, const GptIndexRequest &request);

/// Builds the arrays. Memory: 4 bytes per document and epoch, 12 bytes per sample. Throws DataError.
std::unique_ptr<GptIndex> buildGptIndex(const TokenSource &source, const GptIndexRequest &request);

} // namespace espalier::rt
