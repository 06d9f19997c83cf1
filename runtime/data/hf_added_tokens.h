// Tokens that are looked for in the text before the model sees it, such as <|endoftext|>: leftmost,
// then longest.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool isSpecial = false, isSingleWord = false, stripsLeft = false, stripsRight = false;
  bool isNormalized = false; // looked for after normalization instead of before
};

/// The "added_tokens" field. Throws DataError.
std::vector<AddedToken> readAddedTokens(const std::string &file, const nlohmann::json &field);

/// Text between tokens has id -1.
struct AddedPiece {
  size_t begin, end;
  int32_t id;
};

class AddedTokenFinder {
public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  /// Cuts `text` at its added tokens; nothing empty.
  std::vector<AddedPiece> cut(std::string_view text) const;

private:
  const AddedToken *match(std::string_view text, size_t at) const;
  std::vector<AddedToken> sorted; // longest first within a first byte
  std::vector<uint32_t> firstOf;  // 257 entries
};

} // namespace espalier::rt
