// The "decoder" field of a tokenizer.json, which converts token texts back to text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace espalier::rt {

/// The steps of a decoder.
class HfDecoder {
public:
  /// Reads the field. Throws DataError for an unsupported decoder type.
  static HfDecoder read(const std::string &file, const nlohmann::json &field);
  /// Converts token texts to text.
  std::string decode(std::vector<std::string> tokens) const;

private:
  enum class Kind { byteLevel, replace, byteFallback, fuse, strip, metaspace, wordPiece };
  struct Step {
    Kind kind;
    std::string from, to; // replace; `from` is the character of strip and metaspace, the prefix of wordPiece
    // strip: how many at either end; metaspace: start 1 drops the first space; wordPiece: start 1 cleans up
    size_t start = 0, stop = 0;
  };
  void add(const std::string &file, const nlohmann::json &step, int depth);
  std::vector<Step> steps;
};

} // namespace espalier::rt
