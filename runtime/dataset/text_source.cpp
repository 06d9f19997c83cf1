// Documents keep every byte of the text: a document ends after its separator.
#include "runtime/dataset/text_source.h"

#include "messages/data_error.h"
#include "runtime/dataset/indexed_writer.h"
#include "runtime/dataset/text_check.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace espalier::rt {

namespace {

constexpr size_t fewestDocuments = 100;

/// Returns the lengths of the pieces that end after `separator`. Each piece has at least `shortest` bytes, except the
/// last.
std::vector<int32_t> cutAfter(std::string_view text, std::string_view separator, size_t shortest) {
  std::vector<int32_t> lengths;
  constexpr size_t longest = std::numeric_limits<int32_t>::max();
  size_t start = 0;
  while (start < text.size()) {
    size_t found = text.find(separator, std::min(text.size(), start + shortest - 1));
    size_t end = found == std::string_view::npos ? text.size() : found + separator.size();
    // Further line breaks belong to the same gap.
    while (end < text.size() && text[end] == '\n')
      ++end;
    end = std::min(std::max(end, start + 1), start + longest);
    lengths.push_back(static_cast<int32_t>(end - start));
    start = end;
  }
  return lengths;
}

} // namespace

IndexedDataset openText(const std::string &path) {
  MappedFile file(path);
  std::span<const uint8_t> bytes = file.bytes();
  if (bytes.empty())
    throw DataError(path, "the text is empty");
  std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  requireRawText(path, text);
  IndexArrays arrays;
  arrays.lengths = cutAfter(text, "\n\n", 1);
  if (arrays.lengths.size() < fewestDocuments)
    arrays.lengths = cutAfter(text, "\n", text.size() / fewestDocuments + 1);
  // If the text is one long line, cuts it into equal pieces.
  if (arrays.lengths.size() < 3)
    arrays.lengths = cutAfter(text, "", text.size() / fewestDocuments + 1);
  arrays.sequencesPerDocument.assign(arrays.lengths.size(), 1);
  return IndexedDataset::overFile(path, encodeIndex(TokenType::u8, arrays), std::move(file));
}

} // namespace espalier::rt
