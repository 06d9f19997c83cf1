// All checks run once, when the dataset is opened. Reads rely on these checks.
#include "runtime/dataset/indexed_dataset.h"

#include "messages/data_error.h"

#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace espalier::rt {

namespace {

template <typename T> T load(const uint8_t *from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Widens tokens of type T to i32. Returns the first invalid value, or 0 if all are valid.
template <typename T> int64_t widen(const uint8_t *from, std::span<int32_t> out) {
  for (size_t k = 0; k < out.size(); ++k) {
    T value = load<T>(from + k * sizeof(T));
    if constexpr (std::is_signed_v<T>)
      if (value < 0)
        return value;
    if constexpr (sizeof(T) == 8)
      if (value > std::numeric_limits<int32_t>::max())
        return value;
    out[k] = static_cast<int32_t>(value);
  }
  return 0;
}

} // namespace

int tokenBytes(TokenType type) {
  constexpr int bytes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};
  auto code = static_cast<size_t>(type);
  return code < std::size(bytes) ? bytes[code] : 0;
}

const char *tokenTypeName(TokenType type) {
  constexpr const char *names[] = {"?", "u8", "i8", "i16", "i32", "i64", "f64", "f32", "u16"};
  auto code = static_cast<size_t>(type);
  return code < std::size(names) ? names[code] : names[0];
}

std::string lossMaskPrefix(const std::string &prefix) { return prefix + "_loss_mask"; }

TokenType tokenTypeFor(int64_t vocabSize) { return vocabSize < 65500 ? TokenType::u16 : TokenType::i32; }

IndexedDataset IndexedDataset::open(const std::string &prefix) {
  IndexedDataset set;
  set.prefixName = prefix;
  set.indexFile = MappedFile(prefix + ".idx");
  set.tokenFile = MappedFile(prefix + ".bin");
  set.checkHeader();
  set.checkArrays();
  return set;
}

IndexedDataset IndexedDataset::fromMemory(std::string name, std::vector<uint8_t> index, std::vector<uint8_t> tokens) {
  IndexedDataset set;
  set.prefixName = std::move(name);
  set.ownedIndex = std::move(index);
  set.ownedTokens = std::move(tokens);
  set.checkHeader();
  set.checkArrays();
  return set;
}

IndexedDataset IndexedDataset::overFile(std::string name, std::vector<uint8_t> index, MappedFile tokens) {
  IndexedDataset set;
  set.prefixName = std::move(name);
  set.ownedIndex = std::move(index);
  set.tokenFile = std::move(tokens);
  set.checkHeader();
  set.checkArrays();
  return set;
}

std::span<const uint8_t> IndexedDataset::indexBytes() const {
  return ownedIndex.empty() ? indexFile.bytes() : std::span<const uint8_t>(ownedIndex);
}

std::span<const uint8_t> IndexedDataset::tokenBytesSpan() const {
  return ownedTokens.empty() ? tokenFile.bytes() : std::span<const uint8_t>(ownedTokens);
}

void IndexedDataset::checkHeader() {
  std::string file = prefixName + ".idx";
  std::span<const uint8_t> bytes = indexBytes();
  if (bytes.size() < indexHeaderBytes)
    throw DataError(file, fmt::format("{} bytes, an index has at least {}", bytes.size(), indexHeaderBytes));
  if (std::memcmp(bytes.data(), "MMIDIDX\0\0", 9) != 0)
    throw DataError(file, "not a Megatron index: its first 9 bytes are not MMIDIDX");
  if (uint64_t version = load<uint64_t>(bytes.data() + 9); version != 1)
    throw DataError(file, fmt::format("index version {}, want 1", version));
  type = static_cast<TokenType>(bytes[17]);
  if (tokenBytes(type) == 0)
    throw DataError(file, fmt::format("token type {}, want 1 to 8", bytes[17]));
  if (type == TokenType::f32 || type == TokenType::f64)
    throw DataError(file, fmt::format("token type {} holds no tokens, want an integer type", tokenTypeName(type)));
  uint64_t count = load<uint64_t>(bytes.data() + 18);
  uint64_t entries = load<uint64_t>(bytes.data() + 26);
  // Checking both counts against the size first keeps the sum below from overflowing.
  if (count > bytes.size() / 12 || entries > bytes.size() / 8)
    throw DataError(
        file, fmt::format("{} sequences and {} document entries do not fit {} bytes", count, entries, bytes.size()));
  uint64_t want = indexHeaderBytes + 12 * count + 8 * entries;
  hasModes = count != 0 && bytes.size() == want + count;
  if (bytes.size() != want && !hasModes)
    throw DataError(file, fmt::format("{} bytes, but {} sequences and {} document entries take {}", bytes.size(), count,
                                      entries, want));
  if (entries == 0)
    throw DataError(file, "no document entries, want at least the leading 0");
  sequences = static_cast<int64_t>(count);
  documentEntries = static_cast<int64_t>(entries);
}

void IndexedDataset::checkArrays() {
  std::string file = prefixName + ".idx";
  const int64_t width = tokenBytes(type);
  const int64_t tokenFileBytes = static_cast<int64_t>(tokenBytesSpan().size());
  for (int64_t i = 0; i < sequences; ++i) {
    int64_t length = sequenceLength(i), offset = byteOffset(i);
    if (length < 0)
      throw DataError(file, fmt::format("sequence {} has length {}", i, length));
    if (offset < 0 || offset > tokenFileBytes || length * width > tokenFileBytes - offset)
      throw DataError(file, fmt::format("sequence {} is {} bytes at offset {}, but the .bin file "
                                        "has {} bytes",
                                        i, length * width, offset, tokenFileBytes));
    totalTokens += length;
  }
  int64_t previous = 0;
  for (int64_t i = 0; i < documentEntries; ++i) {
    int64_t start = documentStart(i);
    if (start < previous || start > sequences || (i == 0 && start != 0))
      throw DataError(
          file, fmt::format("document entry {} is {}, want {} to {}", i, start, previous, i == 0 ? 0 : sequences));
    previous = start;
  }
  if (previous != sequences)
    throw DataError(file,
                    fmt::format("the last document entry is {}, want the sequence count {}", previous, sequences));
}

int64_t IndexedDataset::sequenceLength(int64_t i) const {
  return load<int32_t>(indexBytes().data() + indexHeaderBytes + 4 * i);
}

int64_t IndexedDataset::byteOffset(int64_t i) const {
  return load<int64_t>(indexBytes().data() + indexHeaderBytes + 4 * sequences + 8 * i);
}

int64_t IndexedDataset::documentStart(int64_t i) const {
  return load<int64_t>(indexBytes().data() + indexHeaderBytes + 12 * sequences + 8 * i);
}

void IndexedDataset::read(int64_t i, int64_t offset, std::span<int32_t> out) const {
  if (out.empty())
    return;
  const uint8_t *from = tokenBytesSpan().data() + byteOffset(i) + offset * tokenBytes(type);
  int64_t fault = 0;
  switch (type) {
  case TokenType::u8:
    fault = widen<uint8_t>(from, out);
    break;
  case TokenType::i8:
    fault = widen<int8_t>(from, out);
    break;
  case TokenType::i16:
    fault = widen<int16_t>(from, out);
    break;
  case TokenType::u16:
    fault = widen<uint16_t>(from, out);
    break;
  case TokenType::i32:
    fault = widen<int32_t>(from, out);
    break;
  default:
    fault = widen<int64_t>(from, out);
    break;
  }
  if (fault != 0)
    throw DataError(prefixName + ".bin",
                    fmt::format("sequence {} holds {}, want a token from 0 to 2147483647", i, fault));
}

std::string IndexedDataset::fingerprint() const {
  // The lengths determine the sample index, so the FNV-1a hash covers all of them.
  uint64_t hash = 0xcbf29ce484222325U;
  std::span<const uint8_t> lengths = indexBytes().subspan(indexHeaderBytes, 4 * sequences);
  for (uint8_t byte : lengths)
    hash = (hash ^ byte) * 0x100000001b3U;
  return fmt::format("{} sequences, {} tokens, lengths {:016x}", sequences, totalTokens, hash);
}

} // namespace espalier::rt
