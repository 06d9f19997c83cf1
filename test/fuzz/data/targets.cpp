// The parsers read files, so the inputs are written to files in memory.
#include "test/fuzz/data/targets.h"

#include "format/regex.h"
#include "messages/data_error.h"
#include "runtime/dataset/dataset_report.h"
#include "runtime/dataset/json_fields.h"
#include "runtime/tokenizer/gpt2_scanner.h"
#include "runtime/utf8.h"
#include "test/fuzz/memory_file.h"

#include <cstdlib>
#include <cstring>

namespace espalier::rt::fuzz {

using espalier::fuzz::MemoryFile;

namespace {

constexpr std::string_view sample = "Hello  world's\n\t1234 \xC3\xA9 \xE2\x96\x81 <s>\xF0\x9F\x99\x82 \xFF<|end|> cat";

/// Encodes and decodes with the tokenizer of these files, which may be refused.
void exercise(const TokenizerOptions &options) {
  try {
    std::unique_ptr<Tokenizer> tokenizer = openTokenizer(options);
    std::vector<int32_t> ids = tokenizer->encode(sample);
    for (int32_t id : ids)
      if (id < 0 || id >= tokenizer->vocabSize())
        std::abort();
    tokenizer->decode(ids);
    tokenizer->clone()->encode(sample.substr(0, 20));
  } catch (const DataError &) {
  }
}

} // namespace

int fuzzIndex(Bytes data, size_t size) {
  if (size < 2)
    return 0;
  size_t indexSize = std::min<size_t>(data[0] | data[1] << 8, size - 2);
  try {
    IndexedDataset set =
        IndexedDataset::fromMemory("input", {data + 2, data + 2 + indexSize}, {data + 2 + indexSize, data + size});
    describeDataset(set, nullptr, 3);
    verifyTokens(set, 1000);
  } catch (const DataError &) {
  }
  return 0;
}

int fuzzGpt2(Bytes data, size_t size) {
  const void *zero = size ? std::memchr(data, 0, size) : nullptr;
  size_t vocabSize = zero ? static_cast<Bytes>(zero) - data : size;
  size_t mergeStart = std::min(vocabSize + 1, size);
  MemoryFile vocab(data, vocabSize), merges(data + mergeStart, size - mergeStart);
  TokenizerOptions options;
  options.kind = "gpt2";
  options.vocabFile = vocab.path();
  options.mergeFile = merges.path();
  options.specialTokens = true;
  exercise(options);
  return 0;
}

int fuzzHf(Bytes data, size_t size) {
  MemoryFile file(data, size);
  TokenizerOptions options;
  options.kind = "hf";
  options.modelFile = file.path();
  options.specialTokens = true;
  exercise(options);
  return 0;
}

int fuzzSentencepiece(Bytes data, size_t size) {
  MemoryFile file(data, size);
  TokenizerOptions options;
  options.kind = "sentencepiece";
  options.modelFile = file.path();
  exercise(options);
  return 0;
}

int fuzzTiktoken(Bytes data, size_t size) {
  MemoryFile file(data, size);
  TokenizerOptions options;
  options.kind = "tiktoken";
  options.modelFile = file.path();
  options.pattern = size % 2 ? "qwen" : "";
  options.specialTokens = size % 3;
  exercise(options);
  return 0;
}

int fuzzJsonl(Bytes data, size_t size) {
  std::vector<JsonField> values;
  readJsonFields({reinterpret_cast<const char *>(data), size}, {"text", "title"}, values);
  return 0;
}

int fuzzScanner(Bytes data, size_t size) {
  static const Gpt2Scanner scanner;
  static const Regex pattern("pattern", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                                        "|\\s+(?!\\S)|\\s+");
  const UnicodeClasses &classes = unicodeClasses();
  static const Regex letter("pattern", "^\\p{L}$"), number("pattern", "^\\p{N}$"), space("pattern", "^\\s$");
  std::string_view text(reinterpret_cast<const char *>(data), size);
  // The regular expression uses an older Unicode version and needs valid UTF-8. Other texts are skipped.
  for (size_t at = 0; at < size;) {
    DecodedChar c = decodeUtf8(text, at);
    std::string_view one = text.substr(at, c.bytes);
    bool isLetter = letter.find(one, 0).first == 0, isNumber = number.find(one, 0).first == 0;
    CharClass known = isLetter                        ? CharClass::letter
                      : isNumber                      ? CharClass::number
                      : space.find(one, 0).first == 0 ? CharClass::space
                                                      : CharClass::other;
    if (!c.isValid || classes.of(c.codePoint) != known)
      return 0;
    at += c.bytes;
  }
  for (size_t at = 0; at < size;) {
    size_t end = scanner.pieceEnd(text, at);
    if (pattern.find(text, at) != std::pair(at, end))
      std::abort();
    at = end;
  }
  return 0;
}

} // namespace espalier::rt::fuzz
