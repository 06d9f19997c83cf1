// Added tokens, such as <|endoftext|>, are matched in the text before the model encodes the rest. The leftmost match
// wins, then the longest.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// An entry of "added_tokens".
struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool isSpecial = false, isSingleWord = false, stripsLeft = false, stripsRight = false;
  bool isNormalized = false; // matched after normalization instead of before
};

/// Reads the "added_tokens" field. Throws DataError.
std::vector<AddedToken> readAddedTokens(const std::string &file, const nlohmann::json &field);

/// A range of the text. Text between tokens has id -1.
struct AddedPiece {
  size_t begin, end;
  int32_t id;
};

/// Finds added tokens in texts.
class AddedTokenFinder {
public:
  /// Builds the finder's table.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  /// Cuts `text` at its added tokens. Returns no empty pieces.
  std::vector<AddedPiece> cut(std::string_view text) const;

private:
  const AddedToken *match(std::string_view text, size_t at) const;
  std::vector<AddedToken> sorted; // longest first within a first byte
  std::vector<uint32_t> firstOf;  // 257 entries
};

} // namespace espalier::rt
