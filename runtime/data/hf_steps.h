// The text steps of a tokenizer.json: normalizers change a text, pre-tokenizers cut it into words.
// Each step is a small object; a kind this program does not know is refused when the file is read,
// never skipped.
#pragma once

#include "runtime/data/unicode_classes.h"

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// A piece of text on its way to the model; `isFirst` when it starts where the whole text starts.
struct TextPiece {
  std::string text;
  bool isFirst = false;
};

/// Most bytes that normalizing `bytes` of text may give; a file whose steps multiply the text
/// beyond is refused.
constexpr size_t largestNormalized(size_t bytes) { return 16 * bytes + (size_t{1} << 20); }

/// A text under normalization.
struct NormalText {
  std::string text;
  bool keepsStart = true; ///< its first character stems from the first of the original
};

class NormalizerStep {
public:
  virtual ~NormalizerStep() = default;
  virtual void apply(NormalText &text) const = 0;
};

class PreTokenizerStep {
public:
  virtual ~PreTokenizerStep() = default;
  /// Appends what `piece` becomes; nothing empty.
  virtual void apply(TextPiece piece, std::vector<TextPiece> &out) const = 0;
};

/// What the "normalizer" field says; no steps for null. Throws DataError.
std::vector<std::unique_ptr<NormalizerStep>> readNormalizer(const std::string &file, const nlohmann::json &field);

/// What the "pre_tokenizer" field says. `isByteLevel` is set when words go to the model as bytes.
struct PreTokenizer {
  std::vector<std::unique_ptr<PreTokenizerStep>> steps;
  bool isByteLevel = false;
  /// The field is a ByteLevel step alone that cuts by GPT-2's pattern and adds no space: the fast
  /// path.
  bool isPlainGpt2 = false;
};
PreTokenizer readPreTokenizer(const std::string &file, const nlohmann::json &field);

} // namespace espalier::rt
