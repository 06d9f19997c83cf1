// The histogram of lengths uses powers of two, because lengths range from one token to millions.
#include "runtime/dataset/dataset_report.h"

#include "messages/data_error.h"
#include "runtime/dataset/loss_mask.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

constexpr int64_t shownTokens = 48;
constexpr size_t blockTokens = 1U << 16;

std::string lengthHistogram(const IndexedDataset &set) {
  std::vector<int64_t> bins(33);
  for (int64_t i = 0; i < set.sequenceCount(); ++i)
    ++bins[std::bit_width(static_cast<uint32_t>(set.sequenceLength(i)))];
  int64_t most = std::max<int64_t>(*std::ranges::max_element(bins), 1);
  std::string text = "tokens a sequence:\n";
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    if (bins[bin] == 0)
      continue;
    int64_t first = bin == 0 ? 0 : int64_t{1} << (bin - 1), last = (int64_t{1} << bin) - 1;
    text += fmt::format("  {:>10} to {:<10} {:>10} {}\n", first, last, bins[bin],
                        std::string(static_cast<size_t>((40 * bins[bin] + most - 1) / most), '#'));
  }
  return text;
}

/// Escapes control characters, so that a document stays on one line.
std::string oneLine(const std::string &text) {
  std::string out;
  for (char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    else
      out += c;
  }
  return out;
}

std::string firstTokens(const IndexedDataset &set, int64_t document, const Tokenizer *tokenizer) {
  std::vector<int32_t> ids;
  int64_t total = 0;
  for (int64_t i = set.documentStart(document); i < set.documentStart(document + 1); ++i) {
    int64_t length = set.sequenceLength(i);
    int64_t take = std::min(length, shownTokens - static_cast<int64_t>(ids.size()));
    total += length;
    ids.resize(ids.size() + take);
    set.read(i, 0, std::span(ids).last(take));
  }
  std::string text = tokenizer ? oneLine(tokenizer->decode(ids)) : fmt::format("{}", fmt::join(ids, " "));
  return fmt::format("document {} ({} tokens): {}{}\n", document, total, text,
                     total > static_cast<int64_t>(ids.size()) ? " ..." : "");
}

} // namespace

std::string describeDataset(const IndexedDataset &set, const Tokenizer *tokenizer, int documents) {
  int64_t empty = 0;
  for (int64_t i = 0; i < set.documentCount(); ++i)
    empty += set.documentStart(i) == set.documentStart(i + 1);
  std::string text = fmt::format("{}: {} documents ({} empty), {} sequences, {} tokens of {}{}\n", set.name(),
                                 set.documentCount(), empty, set.sequenceCount(), set.tokenCount(),
                                 tokenTypeName(set.tokenType()), set.isMultimodal() ? ", multimodal" : "");
  text += lengthHistogram(set);
  for (int64_t i = 0; i < std::min<int64_t>(documents, set.documentCount()); ++i)
    text += firstTokens(set, i, tokenizer);
  return text;
}

void verifyLossMask(const IndexedDataset &set, const std::string &prefix) {
  if (prefix.empty())
    return;
  IndexedDataset mask = IndexedDataset::open(prefix);
  requireSameSequences(set, mask);
  for (int64_t i = 0; i < mask.sequenceCount(); ++i) {
    std::vector<int32_t> values(mask.sequenceLength(i));
    mask.read(i, 0, values);
    requireMaskValues(mask, i, values);
  }
}

int64_t verifyTokens(const IndexedDataset &set, int64_t vocabSize) {
  int64_t largest = -1;
  std::vector<int32_t> block(blockTokens);
  for (int64_t i = 0; i < set.sequenceCount(); ++i) {
    int64_t length = set.sequenceLength(i);
    for (int64_t at = 0; at < length; at += blockTokens) {
      std::span<int32_t> part = std::span(block).first(std::min<int64_t>(blockTokens, length - at));
      set.read(i, at, part);
      largest = std::max<int64_t>(largest, *std::ranges::max_element(part));
      if (vocabSize > 0 && largest >= vocabSize)
        throw DataError(set.name() + ".bin",
                        fmt::format("sequence {} holds token {}, outside the vocabulary of {}", i, largest, vocabSize));
    }
  }
  return largest;
}

} // namespace espalier::rt
