// The text steps of a tokenizer.json. Normalizers change a text, and pre-tokenizers cut it into words. Each step is an
// object. An unsupported step is an error when the file is read; no step is skipped.
#pragma once

#include "runtime/tokenizer/unicode_classes.h"

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// A range of text on its way to the model. `isFirst` is set if it starts at the start of the whole text.
struct TextPiece {
  std::string text;
  bool isFirst = false;
};

/// Returns the largest permitted size of a normalized text of `bytes` bytes. A file whose steps exceed the limit is
/// rejected.
constexpr size_t largestNormalized(size_t bytes) { return 16 * bytes + (size_t{1} << 20); }

/// A text during normalization.
struct NormalText {
  std::string text;
  bool keepsStart = true; ///< its first character comes from the first character of the original
};

/// A step that changes a text.
class NormalizerStep {
public:
  virtual ~NormalizerStep() = default;
  /// Applies the step in place.
  virtual void apply(NormalText &text) const = 0;
};

/// A step that cuts a text into words.
class PreTokenizerStep {
public:
  virtual ~PreTokenizerStep() = default;
  /// Cuts `piece` and appends the results. Appends no empty texts.
  virtual void apply(TextPiece piece, std::vector<TextPiece> &out) const = 0;
};

/// Reads the "normalizer" field. Returns no steps for null. Throws DataError.
std::vector<std::unique_ptr<NormalizerStep>> readNormalizer(const std::string &file, const nlohmann::json &field);

/// The "pre_tokenizer" field. `isByteLevel` is set if the model receives words as bytes.
struct PreTokenizer {
  std::vector<std::unique_ptr<PreTokenizerStep>> steps;
  bool isByteLevel = false;
  /// The field is a single ByteLevel step that cuts by GPT-2's pattern and adds no space. This case has a fast path.
  bool isPlainGpt2 = false;
};
/// Reads the "pre_tokenizer" field. Throws DataError.
PreTokenizer readPreTokenizer(const std::string &file, const nlohmann::json &field);

} // namespace espalier::rt
