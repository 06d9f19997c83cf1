// The "decoder" field of a tokenizer.json: token texts back to text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace espalier::rt {

class HfDecoder {
public:
  /// Throws DataError for a decoder of a kind this program does not know.
  static HfDecoder read(const std::string &file, const nlohmann::json &field);
  std::string decode(std::vector<std::string> tokens) const;

private:
  enum class Kind { byteLevel, replace, byteFallback, fuse, strip, metaspace };
  struct Step {
    Kind kind;
    std::string from, to; // replace; `from` is the character of strip and metaspace
    size_t start = 0,
           stop = 0; // strip: how many at either end; metaspace: start 1 drops the first space
  };
  void add(const std::string &file, const nlohmann::json &step, int depth);
  std::vector<Step> steps;
};

} // namespace espalier::rt
