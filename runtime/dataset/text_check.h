// Distinguishes text from binary files by content, so that no binary file is read as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::rt {

/// The name of the input "-" in errors.
constexpr const char *standardInput = "standard input";

/// Throws DataError if `beginning`, the first bytes of the input `name`, belongs to a known binary format. The error
/// says how to convert the input to text. Example: "a.parquet: error: is a Parquet file; ...".
void requireTextFormat(const std::string &name, std::string_view beginning);

/// Returns why a .bin without .idx is not read, with the command that converts a token file of nanoGPT.
std::string tokenFileWay(const std::string &file);

/// Returns why a folder is not read, with the command that converts a Hugging Face data set.
std::string folderWay(const std::string &folder);

/// Returns whether a file with these first bytes is gzip.
bool isGzip(std::string_view beginning);

/// Returns the offset of the first NUL or non-UTF-8 byte, or nothing if there is none.
std::optional<size_t> findBinary(std::string_view text);

/// A byte that may not occur in text.
struct BinaryByte {
  int64_t line = 0;   ///< in the text, from 0
  std::string reason; ///< "byte 7 of the line is 0x00, want UTF-8 text without NUL"
};

/// Describes the byte at the offset that findBinary returned for `text`.
BinaryByte describeBinary(std::string_view text, size_t at);

/// Throws DataError unless `text`, the content of the file `name`, can be read as bytes: UTF-8 text that is not JSON
/// lines. A character that the end of the file cuts off is permitted. The error recommends `espalier data tokenize`.
void requireRawText(const std::string &name, std::string_view text);

} // namespace espalier::rt
