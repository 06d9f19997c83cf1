// Pair counts are updated exactly as words change. A heap holds candidates with the count at their insertion; a
// candidate whose count has changed is inserted again with the new count.
#include "runtime/tokenizer/train_bpe.h"

#include "messages/data_error.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <queue>
#include <unordered_map>

namespace espalier::rt {

namespace {

using Pair = std::pair<int32_t, int32_t>;

uint64_t keyOf(Pair pair) {
  return uint64_t{static_cast<uint32_t>(pair.first)} << 32 | static_cast<uint32_t>(pair.second);
}

struct Candidate {
  Pair pair;
  uint64_t count;
  std::vector<uint32_t> words; // words that contained the pair at insertion
  bool operator<(const Candidate &other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
public:
  Trainer(const WordCounts &counts, const TrainBpeOptions &options) : options(options) {
    addFixedTokens();
    for (const auto &[text, count] : counts.counts()) {
      std::vector<int32_t> ids;
      for (char c : text)
        ids.push_back(byteIds[static_cast<uint8_t>(c)]);
      words.push_back(std::move(ids));
      wordCounts.push_back(count);
    }
    countPairs();
  }

  TrainedBpe run() {
    while (static_cast<int64_t>(result.tokens.size()) < options.vocabSize && !heap.empty()) {
      Candidate top =
          std::move(const_cast<Candidate &>(heap.top())); // popped next, so the moved-from value is never compared
      heap.pop();
      auto now = static_cast<uint64_t>(pairCounts[keyOf(top.pair)]);
      if (now != top.count) {
        top.count = now;
        heap.push(std::move(top));
        continue;
      }
      if (top.count < 1 || top.count < static_cast<uint64_t>(options.minFrequency))
        break;
      mergeEverywhere(top);
    }
    return std::move(result);
  }

private:
  void addFixedTokens() {
    for (const std::string &token : options.specialTokens)
      if (ids.try_emplace(token, static_cast<int32_t>(result.tokens.size())).second)
        result.tokens.push_back(token);
    result.specialCount = result.tokens.size();
    std::array<char32_t, 256> chars = byteLevelChars();
    std::vector<int> bytes(256);
    std::iota(bytes.begin(), bytes.end(), 0);
    std::ranges::sort(bytes, {}, [&chars](int byte) { return chars[byte]; });
    for (int byte : bytes) {
      std::string text;
      appendUtf8(chars[byte], text);
      byteIds[byte] = tokenId(text);
    }
    if (static_cast<int64_t>(result.tokens.size()) > options.vocabSize)
      throw DataError("train-tokenizer",
                      fmt::format("vocabulary size {}, want at least {} for the special tokens and bytes",
                                  options.vocabSize, result.tokens.size()));
  }

  int32_t tokenId(const std::string &text) {
    auto [found, isNew] = ids.try_emplace(text, static_cast<int32_t>(result.tokens.size()));
    if (isNew)
      result.tokens.push_back(text);
    return found->second;
  }

  void countPairs() {
    std::unordered_map<uint64_t, std::vector<uint32_t>> places;
    for (uint32_t w = 0; w < words.size(); ++w)
      for (size_t i = 0; i + 1 < words[w].size(); ++i)
        note({words[w][i], words[w][i + 1]}, wordCounts[w], w, places);
    pushCandidates(places);
  }

  void note(Pair pair, int64_t change, uint32_t word, std::unordered_map<uint64_t, std::vector<uint32_t>> &places) {
    pairCounts[keyOf(pair)] += change;
    if (change <= 0)
      return;
    std::vector<uint32_t> &seen = places[keyOf(pair)];
    if (seen.empty() || seen.back() != word)
      seen.push_back(word);
  }

  void pushCandidates(std::unordered_map<uint64_t, std::vector<uint32_t>> &places) {
    for (auto &[key, seen] : places) // the heap's order does not depend on the order of pushes
      if (int64_t count = pairCounts[key]; count > 0)
        heap.push({{static_cast<int32_t>(key >> 32), static_cast<int32_t>(key)},
                   static_cast<uint64_t>(count),
                   std::move(seen)});
  }

  void mergeEverywhere(const Candidate &chosen) {
    int32_t made = tokenId(result.tokens[chosen.pair.first] + result.tokens[chosen.pair.second]);
    result.merges.push_back(chosen.pair);
    std::unordered_map<uint64_t, std::vector<uint32_t>> places;
    for (uint32_t w : chosen.words)
      mergeWord(w, chosen.pair, made, places);
    pushCandidates(places);
  }

  void mergeWord(uint32_t w, Pair pair, int32_t made, std::unordered_map<uint64_t, std::vector<uint32_t>> &places) {
    std::vector<int32_t> &word = words[w];
    int64_t count = wordCounts[w];
    size_t kept = 0; // word[0, kept) is complete
    for (size_t i = 0; i < word.size(); ++i) {
      if (i + 1 == word.size() || word[i] != pair.first || word[i + 1] != pair.second) {
        word[kept++] = word[i];
        continue;
      }
      if (kept > 0) {
        note({word[kept - 1], pair.first}, -count, w, places);
        note({word[kept - 1], made}, count, w, places);
      }
      if (i + 2 < word.size()) {
        note({pair.second, word[i + 2]}, -count, w, places);
        note({made, word[i + 2]}, count, w, places);
      }
      word[kept++] = made;
      ++i;
    }
    word.resize(kept);
  }

  const TrainBpeOptions &options;
  TrainedBpe result;
  std::unordered_map<std::string, int32_t> ids;
  std::array<int32_t, 256> byteIds;
  std::vector<std::vector<int32_t>> words;
  std::vector<int64_t> wordCounts;
  std::unordered_map<uint64_t, int64_t> pairCounts;
  std::priority_queue<Candidate> heap;
};

} // namespace

void WordCounts::add(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    size_t end = scanner.pieceEnd(text, at);
    for (; at < end; at += std::min(longestWord, end - at)) {
      std::string_view word = text.substr(at, std::min(longestWord, end - at));
      if (auto found = words.find(word); found != words.end())
        ++found->second;
      else
        words.emplace(word, 1);
    }
  }
}

TrainedBpe trainBpe(const WordCounts &words, const TrainBpeOptions &options) { return Trainer(words, options).run(); }

std::string toVocabJson(const TrainedBpe &trained) {
  std::string text;
  for (size_t id = 0; id < trained.tokens.size(); ++id)
    text += fmt::format("{}{}: {}", id == 0 ? "{" : ", ", nlohmann::json(trained.tokens[id]).dump(), id);
  return text + "}\n";
}

std::string toMergeLines(const TrainedBpe &trained) {
  std::string text = "#version: 0.2\n";
  for (auto [left, right] : trained.merges)
    text += trained.tokens[left] + " " + trained.tokens[right] + "\n";
  return text;
}

std::string toTokenizerJson(const TrainedBpe &trained) {
  using Json = nlohmann::ordered_json;
  Json byteLevel = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json decoder = byteLevel; // decoding ignores the three values; these are the values that HF writes
  decoder["add_prefix_space"] = true;
  Json added = Json::array();
  for (size_t id = 0; id < trained.specialCount; ++id)
    added.push_back({{"id", id},
                     {"content", trained.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  // Writes the vocabulary as text, because insertion into an ordered JSON object is linear and there are thousands of
  // entries.
  std::string vocabulary;
  for (size_t id = 0; id < trained.tokens.size(); ++id)
    vocabulary += fmt::format("{}      {}: {}", id == 0 ? "\n" : ",\n", Json(trained.tokens[id]).dump(), id);
  Json merges = Json::array();
  for (auto [left, right] : trained.merges)
    merges.push_back(Json::array({trained.tokens[left], trained.tokens[right]}));
  constexpr const char *mark = "@vocabulary@";
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", mark},
                {"merges", merges}};
  Json file = {{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
               {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", byteLevel},
               {"post_processor", nullptr}, {"decoder", decoder},    {"model", model}};
  std::string text = file.dump(2);
  std::string quoted = fmt::format("\"vocab\": \"{}\"", mark);
  size_t at = text.find(quoted);
  return text.replace(at, quoted.size(), "\"vocab\": {" + vocabulary + "\n    }");
}

} // namespace espalier::rt
