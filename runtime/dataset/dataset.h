// The interface through which training reads data. A Dataset is a numbered list of samples of seqLength + 1 tokens.
// openDataset creates datasets from Megatron files, plain text, blends and the mock. Reading is const and safe in any
// number of threads. The number of consumed samples determines the samples of a step (sampler.h).
//
//   DatasetOptions options;
//   options.seqLength = 128;
//   auto train = openDataset("corpus.txt", options);            // bytes of a text
//   options.split = Split::valid;
//   auto valid = openDataset("my_corpus_text_document", options); // PREFIX.bin and PREFIX.idx
#pragma once

#include "format/blend_list.h"
#include "format/splits.h"
#include "runtime/dataset/blend.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// The options of a dataset.
struct DatasetOptions {
  int64_t seqLength = 1024;
  Split split = Split::train;
  std::string splitWeights = "969,30,1"; // by sequences of each file, in file order
  uint32_t seed = 1234;
  /// The number of samples; the dataset repeats epochs until it has this many. 0 gives one epoch, in shuffled order.
  int64_t samples = 0;
  /// Tokens at or above this number are errors that name file and position. 0 disables the check.
  int64_t vocabSize = 0;
  /// The end-of-document token for the three options below, or -1.
  int32_t eodToken = -1;
  bool eodMaskLoss = false;        // no loss where the input token ends a document
  bool resetPositionIds = false;   // positions restart after the end of a document
  bool resetAttentionMask = false; // tokens attend only to their own document
  /// Keeps a last validation sample shorter than seqLength + 1, padded and without loss on the padding.
  bool keepLastPartial = false;
  /// Packs whole documents for steps of this many samples, which have nearly equal attention work (packing.h). 0 cuts
  /// the text of all documents where a sample ends.
  int64_t balancedBatch = 0;
  /// Folder for index arrays that runs share. Empty: each run builds the arrays.
  std::string cacheFolder;
};

/// The destination of one sample. Each span is empty (skipped) or has seqLength elements.
struct SampleView {
  std::span<int32_t> tokens;
  std::span<int32_t> labels;      // labels[k] follows tokens[k]
  std::span<float> lossWeights;   // 1, or 0 if labels[k] does not count
  std::span<int32_t> positions;   // k, or the distance from the document's start
  std::span<int32_t> visibleFrom; // token k attends to visibleFrom[k] .. k; 0 without resetAttentionMask
};

/// One sample that owns its memory. Each vector has seqLength elements.
struct Sample {
  std::vector<int32_t> tokens, labels;
  std::vector<float> lossWeights;
  std::vector<int32_t> positions, visibleFrom;
};

struct PackedRows;

/// A numbered list of samples.
class Dataset {
public:
  virtual ~Dataset() = default;
  /// Returns the number of samples.
  virtual int64_t sampleCount() const = 0;
  int64_t seqLength() const { return settings.seqLength; }
  const DatasetOptions &options() const { return settings; }

  /// Fills the views with sample i, 0 <= i < sampleCount(). Throws DataError for an invalid token.
  void read(int64_t i, const SampleView &out) const;
  /// Does the same without allocation. `text` is scratch memory for seqLength + 1 tokens.
  void read(int64_t i, const SampleView &out, std::span<int32_t> text) const;
  /// Returns sample i.
  Sample sample(int64_t i) const;
  /// Reads the seqLength + 1 tokens of sample i. Positions past the end of a partial sample get -1.
  virtual void readTokens(int64_t i, std::span<int32_t> out) const = 0;
  /// Reads the loss mask of these tokens, 0 or 1 each. Returns false if they have none, so that every token counts.
  virtual bool readLossMask(int64_t /*i*/, std::span<int32_t> /*out*/) const { return false; }
  /// Returns the rows of a balanced dataset, which are its samples; else null.
  virtual const PackedRows *packedRows() const { return nullptr; }

protected:
  explicit Dataset(DatasetOptions options) : settings(std::move(options)) {}

  /// Fills the positions and the first visible tokens of sample i, and removes the loss across borders of documents.
  /// Here, the token after an end of document starts a new document.
  virtual void fillBorders(int64_t i, std::span<const int32_t> text, const SampleView &out) const;

private:
  DatasetOptions settings;
};

/// Opens `path`: a PREFIX (or either of PREFIX.bin, PREFIX.idx), a text file whose bytes are the tokens, or the word
/// "mock". A loss mask beside PREFIX sets the loss weights. Throws DataError.
std::unique_ptr<Dataset> openDataset(const std::string &path, const DatasetOptions &options);

/// Returns the prefix of the loss mask that lies beside the dataset at `path`; empty if there is none.
std::string findLossMask(const std::string &path);

/// Opens a blend of datasets in proportion to their weights. options.samples counts the samples of the blend; 0 gives
/// one epoch of each dataset, in proportion to their sizes.
std::unique_ptr<Dataset> openBlend(const std::vector<BlendPart> &parts, const DatasetOptions &options);

} // namespace espalier::rt
