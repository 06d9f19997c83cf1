// The one interface training reads through. A Dataset is a numbered list of samples of seqLength +
// 1 tokens; Megatron files, plain text, blends and the mock all come from openDataset. Reading is
// const and may run in any number of threads. Which samples a step takes follows from one number,
// the samples consumed (sampler.h).
//
//   DatasetOptions options;
//   options.seqLength = 128;
//   auto train = openDataset("corpus.txt", options);            // bytes of a text
//   options.split = Split::valid;
//   auto valid = openDataset("my_corpus_text_document", options); // PREFIX of PREFIX.bin and
//   PREFIX.idx
#pragma once

#include "runtime/data/blend.h"
#include "runtime/data/splits.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

struct DatasetOptions {
  int64_t seqLength = 1024;
  Split split = Split::train;
  std::string splitWeights = "969,30,1"; // over the sequences of each file, in file order
  uint32_t seed = 1234;
  /// Samples wanted: as many epochs are laid out as hold them. 0 gives one epoch, in shuffled
  /// order.
  int64_t samples = 0;
  /// Tokens at or above this are refused with their file and place. 0 does not check.
  int64_t vocabSize = 0;
  /// End-of-document token for the three options below, -1 for none.
  int32_t eodToken = -1;
  bool eodMaskLoss = false;        // no loss where the input token is the end of a document
  bool resetPositionIds = false;   // positions restart after the end of a document
  bool resetAttentionMask = false; // tokens see only their own document
  /// Keep a last validation sample shorter than seqLength + 1, padded and without loss there.
  bool keepLastPartial = false;
  /// Folder for index arrays shared between runs; empty builds them each time.
  std::string cacheFolder;
};

/// Where one sample goes; each span is empty (skipped) or has seqLength elements.
struct SampleView {
  std::span<int32_t> tokens;
  std::span<int32_t> labels;      // labels[k] follows tokens[k]
  std::span<float> lossWeights;   // 1, or 0 where labels[k] does not count
  std::span<int32_t> positions;   // k, or distance from the document's start under resetPositionIds
  std::span<int32_t> visibleFrom; // token k sees tokens visibleFrom[k] to k; 0 without resetAttentionMask
};

/// One sample with its own memory, all of seqLength elements.
struct Sample {
  std::vector<int32_t> tokens, labels;
  std::vector<float> lossWeights;
  std::vector<int32_t> positions, visibleFrom;
};

class Dataset {
public:
  virtual ~Dataset() = default;
  virtual int64_t sampleCount() const = 0;
  int64_t seqLength() const { return settings.seqLength; }
  const DatasetOptions &options() const { return settings; }

  /// Fills the views with sample i, 0 <= i < sampleCount(). Throws DataError for a token that is
  /// none.
  void read(int64_t i, const SampleView &out) const;
  /// The same without allocating: `text` is scratch for seqLength + 1 tokens.
  void read(int64_t i, const SampleView &out, std::span<int32_t> text) const;
  Sample sample(int64_t i) const;
  /// The seqLength + 1 tokens of sample i; places past the end of a partial sample hold -1.
  virtual void readTokens(int64_t i, std::span<int32_t> out) const = 0;

protected:
  explicit Dataset(DatasetOptions options) : settings(std::move(options)) {}

private:
  DatasetOptions settings;
};

/// Opens `path`: a PREFIX (or either of PREFIX.bin, PREFIX.idx), a text file, whose bytes are the
/// tokens, or the word "mock". Throws DataError.
std::unique_ptr<Dataset> openDataset(const std::string &path, const DatasetOptions &options);

/// Draws from several sets in proportion to their weights; options.samples is for all together, and
/// 0 draws one epoch of each, in proportion to their sizes.
std::unique_ptr<Dataset> openBlend(const std::vector<BlendPart> &parts, const DatasetOptions &options);

} // namespace espalier::rt
