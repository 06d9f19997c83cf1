// Tells text from other files by content, so that no binary file is read as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::rt {

/// What errors call the input "-".
constexpr const char *standardInput = "standard input";

/// Throws DataError if `beginning`, the first bytes of the input `name`, is that of a known format that is not text.
/// The error says how the input becomes text. Example: "a.parquet: error: is a Parquet file; ...".
void requireTextFormat(const std::string &name, std::string_view beginning);

/// Whether a file that begins so is gzip.
bool isGzip(std::string_view beginning);

/// Offset of the first byte that text does not hold: NUL, or one that is not UTF-8.
std::optional<size_t> findBinary(std::string_view text);

/// A byte that text does not hold.
struct BinaryByte {
  int64_t line = 0;   ///< in the text, from 0
  std::string reason; ///< "byte 7 of the line is 0x00, want UTF-8 text without NUL"
};

/// Describes the byte that findBinary returned for `text`.
BinaryByte describeBinary(std::string_view text, size_t at);

/// Throws DataError unless `text`, the content of the file `name`, is what a run reads as bytes: text, and no JSON
/// lines. A character that the end of the file cuts off is text. The error names `espalier data tokenize`.
void requireRawText(const std::string &name, std::string_view text);

} // namespace espalier::rt
