// ASCII is checked eight bytes at a time, so the check runs at the speed of memory.
#include "runtime/dataset/text_check.h"

#include "messages/data_error.h"
#include "runtime/dataset/json_array.h"
#include "runtime/dataset/json_fields.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <vector>

namespace espalier::rt {
namespace {

using namespace std::string_view_literals;

/// A file format that is recognized by its first bytes.
struct Format {
  std::string_view magic, name;
  std::string_view wayOut; ///< how to convert it; {0} is the file
};

constexpr std::string_view gzipMagic = "\x1f\x8b"sv;
constexpr std::string_view noTextThere = "give text, JSON lines, or either as gzip";
constexpr std::string_view tableWay = "python3 tools/to_jsonl.py COLUMN {0} | espalier data tokenize - --jsonl "
                                      "--json-keys COLUMN --output-prefix PREFIX reads it";
constexpr Format formats[] = {
    {"PAR1"sv, "a Parquet file", tableWay},
    {"ARROW1"sv, "an Arrow file", tableWay},
    {"\xff\xff\xff\xff"sv, "an Arrow stream", tableWay},
    {"\x88\xd8\x34\x01"sv, "a token file of llm.c (GPT-2)",
     "python3 tools/to_jsonl.py --tokens uint16 {0} | espalier data tokenize - --jsonl --json-keys input_ids "
     "--tokenizer null --vocab-size 50257 --output-prefix PREFIX reads it"},
    {"\xa1\xd9\x34\x01"sv, "a token file of llm.c (Llama 3)",
     "python3 tools/to_jsonl.py --tokens uint32 {0} | espalier data tokenize - --jsonl --json-keys input_ids "
     "--tokenizer null --vocab-size 128256 --output-prefix PREFIX reads it"},
    {"\x28\xb5\x2f\xfd"sv, "compressed by zstd",
     "zstd -dc {0} | espalier data tokenize - --output-prefix PREFIX reads it"},
    {"\xfd\x37zXZ\0"sv, "compressed by xz", "xz -dc {0} | espalier data tokenize - --output-prefix PREFIX reads it"},
    {"BZh"sv, "compressed by bzip2", "bzip2 -dc {0} | espalier data tokenize - --output-prefix PREFIX reads it"},
    {"PK\x03\x04"sv, "a zip archive", noTextThere},
    {"\x93NUMPY"sv, "a NumPy array", noTextThere},
    {"MMIDIDX\0"sv, "the index of an indexed dataset", "espalier run --data takes the dataset by its prefix"},
};

/// Returns whether the end of the text cuts off the character at `at`.
bool isCutOff(std::string_view text, size_t at) {
  auto lead = static_cast<uint8_t>(text[at]);
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  auto isContinuation = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; };
  return lead >= 0xC2 && lead <= 0xF4 && at + length > text.size() &&
         std::ranges::all_of(text.substr(at + 1), isContinuation);
}

bool isJsonLine(std::string_view text) {
  size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    return false;
  text = text.substr(first);
  if (beginsJsonArray(text)) { // of objects: other text may begin with a bracket
    size_t second = text.find_first_not_of(" \t\r\n", text.find('[') + 1);
    return second != std::string_view::npos && text[second] == '{';
  }
  std::string_view line = text.substr(0, text.find('\n'));
  std::vector<JsonField> none;
  return line.starts_with('{') && readJsonFields(line, {}, none).empty();
}

} // namespace

void requireTextFormat(const std::string &name, std::string_view beginning) {
  const std::string file = name == standardInput ? "FILE" : name;
  for (const Format &format : formats)
    if (beginning.starts_with(format.magic))
      throw DataError(name,
                      fmt::format("is {}, not text; {}", format.name, fmt::format(fmt::runtime(format.wayOut), file)));
  if (name.ends_with(".bin"))
    throw DataError(name, tokenFileWay(name));
}

bool isGzip(std::string_view beginning) { return beginning.starts_with(gzipMagic); }

std::optional<size_t> findBinary(std::string_view text) {
  constexpr uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;
  for (size_t at = 0; at < text.size();) {
    uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      // No byte is above 0x7F, and none is 0: subtracting 1 from each sets no high bit.
      if (((eight | (eight - ones)) & highs) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    DecodedChar next = decodeUtf8(text, at);
    if (!next.isValid || next.codePoint == 0)
      return at;
    at += next.bytes;
  }
  return std::nullopt;
}

BinaryByte describeBinary(std::string_view text, size_t at) {
  int64_t line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
  size_t lineEnd = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  size_t column = lineEnd == std::string_view::npos ? at + 1 : at - lineEnd;
  return {line, fmt::format("byte {} of the line is 0x{:02x}, want UTF-8 text without NUL", column,
                            static_cast<uint8_t>(text[at]))};
}

std::string tokenFileWay(const std::string &file) {
  return fmt::format(
      "a .bin needs its .idx; a token file of nanoGPT is read by: python3 tools/to_jsonl.py --tokens "
      "uint16 --border 50256 {} | espalier data tokenize - --jsonl --json-keys input_ids --tokenizer null "
      "--vocab-size 50257 --output-prefix PREFIX",
      file);
}

std::string folderWay(const std::string &folder) {
  return fmt::format("is a folder, want a file; {}", fmt::format(fmt::runtime(tableWay), folder)) +
         " if it has Parquet or Arrow files";
}

void requireRawText(const std::string &name, std::string_view text) {
  constexpr std::string_view wayOut = "`espalier data tokenize {0} --output-prefix PREFIX` makes a dataset of it; then "
                                      "give --data PREFIX_text_document";
  if (isGzip(text) || isJsonLine(text))
    throw DataError(name, fmt::format("is {}, which a run does not read; {}", isGzip(text) ? "gzip" : "JSON lines",
                                      fmt::format(fmt::runtime(wayOut), name)));
  requireTextFormat(name, text);
  std::optional<size_t> at = findBinary(text);
  if (!at || isCutOff(text, *at))
    return;
  BinaryByte byte = describeBinary(text, *at);
  throw DataError(name,
                  byte.reason + "; give a text file, or the prefix of a dataset that `espalier data tokenize` makes",
                  byte.line + 1);
}

} // namespace espalier::rt
