// Encodes the index in slices, so that memory never holds a second copy of its three arrays.
#include "runtime/dataset/indexed_writer.h"

#include "messages/data_error.h"
#include "runtime/files/partial_path.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <optional>

namespace espalier::rt {

namespace {

/// Calls put(bytes, count) for every value of the .idx file, in file order.
template <typename Put> void emitIndex(TokenType type, const IndexArrays &arrays, Put put) {
  auto value = [&put](auto number) { put(&number, sizeof number); };
  put("MMIDIDX\0\0", 9);
  value(uint64_t{1});
  value(static_cast<uint8_t>(type));
  value(static_cast<uint64_t>(arrays.lengths.size()));
  value(static_cast<uint64_t>(arrays.sequencesPerDocument.size() + 1));
  put(arrays.lengths.data(), 4 * arrays.lengths.size());
  int64_t offset = 0;
  for (int32_t length : arrays.lengths) {
    value(offset);
    offset += int64_t{length} * tokenBytes(type);
  }
  int64_t sequence = 0;
  value(sequence);
  for (uint32_t count : arrays.sequencesPerDocument) {
    sequence += count;
    value(sequence);
  }
}

/// Encodes tokens as T. Returns the first token that does not fit.
template <typename T> std::optional<int32_t> narrow(std::span<const int32_t> tokens, std::vector<uint8_t> &bytes) {
  bytes.resize(tokens.size() * sizeof(T));
  uint8_t *at = bytes.data();
  for (int32_t token : tokens) {
    T value = static_cast<T>(token);
    if (token < 0 || static_cast<int64_t>(value) != token)
      return token;
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  }
  return std::nullopt;
}

} // namespace

std::vector<uint8_t> encodeIndex(TokenType type, const IndexArrays &arrays) {
  std::vector<uint8_t> bytes;
  bytes.reserve(indexHeaderBytes + 12 * arrays.lengths.size() + 8 * (arrays.sequencesPerDocument.size() + 1));
  emitIndex(type, arrays, [&bytes](const void *data, size_t count) {
    auto from = static_cast<const uint8_t *>(data);
    bytes.insert(bytes.end(), from, from + count);
  });
  return bytes;
}

void requireNoDataset(const std::string &prefix) {
  for (const char *suffix : {".idx", ".bin"}) {
    std::error_code error;
    if (std::filesystem::exists(prefix + suffix, error))
      throw DataError(prefix + suffix, "is there already; give another --output-prefix, or --overwrite to replace it");
  }
}

IndexedWriter::IndexedWriter(const std::string &prefix, TokenType type)
    : prefixName(prefix), type(type), binFile(prefix + ".bin"), idxFile(prefix + ".idx") {
  if (type != TokenType::u8 && type != TokenType::u16 && type != TokenType::i32)
    throw DataError(prefix, fmt::format("cannot write tokens as {}, want u8, u16 or i32", tokenTypeName(type)));
  for (const char *ending : {".bin", ".idx"})
    sweepPartials(prefix + ending);
}

void IndexedWriter::addTokens(std::span<const int32_t> tokens) {
  std::optional<int32_t> fault;
  switch (type) {
  case TokenType::u8:
    fault = narrow<uint8_t>(tokens, encoded);
    break;
  case TokenType::u16:
    fault = narrow<uint16_t>(tokens, encoded);
    break;
  default:
    fault = narrow<int32_t>(tokens, encoded);
    break;
  }
  if (fault)
    throw DataError(prefixName + ".bin", fmt::format("token {} does not fit {}", *fault, tokenTypeName(type)));
  currentLength += static_cast<int64_t>(tokens.size());
  binFile.write(encoded.data(), encoded.size());
}

void IndexedWriter::endSequence() {
  if (currentLength == 0)
    return;
  if (currentLength > std::numeric_limits<int32_t>::max())
    throw DataError(prefixName + ".idx", fmt::format("a sequence of {} tokens, the format holds at most {}",
                                                     currentLength, std::numeric_limits<int32_t>::max()));
  arrays.lengths.push_back(static_cast<int32_t>(currentLength));
  totalTokens += currentLength;
  currentLength = 0;
  ++currentSequences;
}

void IndexedWriter::endDocument() {
  endSequence();
  arrays.sequencesPerDocument.push_back(currentSequences);
  currentSequences = 0;
}

void IndexedWriter::addDataset(const IndexedDataset &other) {
  if (other.tokenType() != type)
    throw DataError(other.name() + ".idx", fmt::format("tokens are {}, the merged set's are {}",
                                                       tokenTypeName(other.tokenType()), tokenTypeName(type)));
  if (other.isMultimodal())
    throw DataError(other.name() + ".idx", "a multimodal set cannot be merged");
  for (int64_t i = 0; i < other.sequenceCount(); ++i) {
    // Copies sequence by sequence, because a valid source may have gaps between sequences and the result must not.
    int64_t length = other.sequenceLength(i);
    binFile.write(other.tokenBytesSpan().data() + other.byteOffset(i), length * tokenBytes(type));
    arrays.lengths.push_back(static_cast<int32_t>(length));
    totalTokens += length;
  }
  for (int64_t i = 0; i < other.documentCount(); ++i)
    arrays.sequencesPerDocument.push_back(static_cast<uint32_t>(other.documentStart(i + 1) - other.documentStart(i)));
}

void IndexedWriter::commit() {
  emitIndex(type, arrays, [this](const void *data, size_t count) { idxFile.write(data, count); });
  // Removes the index of an earlier run first, so that it never exists beside the new tokens.
  std::remove(idxFile.path().c_str());
  binFile.commit();
  idxFile.commit();
}

} // namespace espalier::rt
