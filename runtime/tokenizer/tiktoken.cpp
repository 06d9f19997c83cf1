// Files of tiktoken (a base64 text and its rank in each line) and Mistral's tekken.json. Both hold byte sequences with
// ranks: the pair whose bytes have the lowest rank merges first. A rank file says neither the pattern that cuts a text
// into words nor the special tokens; they follow from the name of the encoding, or from the number of ranks.
#include "runtime/tokenizer/tiktoken.h"
#include "messages/data_error.h"
#include "runtime/files/base64.h"
#include "runtime/files/mapped_file.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/hf_file.h"
#include "runtime/tokenizer/hf_json.h"
#include "runtime/tokenizer/prefix_tree.h"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

namespace espalier::rt {

namespace {

constexpr uint64_t largestModelFile = uint64_t{1} << 30;

constexpr const char *gpt2Pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr const char *cl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n])"
    R"(|\s+(?!\S)|\s)";
constexpr const char *o200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char *llama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char *qwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";

struct Special {
  const char *text;
  int32_t id;
};

/// A published encoding.
struct Encoding {
  std::string_view name;
  int64_t ranks; // the number of ranks of its file; 0: the encoding must be named
  const char *pattern;
  std::vector<Special> specials; // the first one ends a document
};

const std::vector<Encoding> &encodings() {
  static const std::vector<Encoding> known = {
      {"r50k_base", 50256, gpt2Pattern, {{"<|endoftext|>", 50256}}},
      {"p50k_base", 50280, gpt2Pattern, {{"<|endoftext|>", 50256}}},
      {"cl100k_base",
       100256,
       cl100kPattern,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base", 199998, o200kPattern, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"o200k_harmony",
       0,
       o200kPattern,
       {{"<|endoftext|>", 199999},
        {"<|startoftext|>", 199998},
        {"<|return|>", 200002},
        {"<|constrain|>", 200003},
        {"<|channel|>", 200005},
        {"<|start|>", 200006},
        {"<|end|>", 200007},
        {"<|message|>", 200008},
        {"<|call|>", 200012},
        {"<|endofprompt|>", 200018}}},
      {"llama3",
       128000,
       llama3Pattern,
       {{"<|end_of_text|>", 128001},
        {"<|begin_of_text|>", 128000},
        {"<|start_header_id|>", 128006},
        {"<|end_header_id|>", 128007},
        {"<|eot_id|>", 128009}}},
      {"qwen", 151643, qwenPattern, {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}}};
  return known;
}

std::string namesOfEncodings() {
  std::vector<std::string_view> names;
  for (const Encoding &encoding : encodings())
    names.push_back(encoding.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Builds the equivalent of a tokenizer.json.
class Builder {
public:
  /// Token `firstId` is the first one with a rank.
  Builder(std::string name, int64_t firstId) : file(std::make_shared<HfFile>()), firstId(firstId), nextId(firstId) {
    file->name = std::move(name);
    file->model.isBpe = file->model.takesWholeWords = true;
  }

  /// Adds the token of the next rank. `line` is 0 in a file without lines.
  void addToken(int64_t line, int64_t rank, const std::string &bytes) {
    BpeVocabulary &vocabulary = file->model.vocabulary;
    if (bytes.empty() || bytes.size() > PrefixTree::longestEntry)
      throw DataError(file->name,
                      fmt::format("a token of {} bytes, want 1 to {}", bytes.size(), PrefixTree::longestEntry), line);
    if (rank != ranks())
      throw DataError(file->name, fmt::format("a token of rank {}, want the next rank, {}", rank, ranks()), line);
    std::string text = toByteLevel(bytes);
    if (vocabulary.idOf(text) >= 0)
      throw DataError(file->name, fmt::format("rank {} repeats the bytes of an earlier rank", rank), line);
    vocabulary.setToken(static_cast<int32_t>(nextId++), text);
  }
  int64_t ranks() const { return nextId - firstId; }

  /// Adds a special token. The first one ends a document, unless the options name another.
  void addSpecial(const std::string &text, int64_t id) {
    if (text.empty())
      throw DataError(file->name, fmt::format("special token {} has no text", id));
    specials.push_back({{"id", id},
                        {"content", text},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", true}});
    file->marks.insert(static_cast<int32_t>(id));
  }

  /// Finishes the tables.
  std::shared_ptr<const HfFile> build(const std::string &pattern, const TokenizerOptions &options) {
    BpeVocabulary &vocabulary = file->model.vocabulary;
    if (std::ranges::min(vocabulary.byteIds()) < 0)
      throw DataError(file->name, "a byte has no rank; want a rank for each of the 256 bytes");
    vocabulary.addMergesByRank(static_cast<int32_t>(firstId));
    for (const nlohmann::json &special : specials)
      vocabulary.setToken(special["id"], special["content"]);
    nlohmann::json bytes = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    nlohmann::json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    file->json = {{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}}, {"decoder", bytes}};
    if (options.specialTokens)
      file->json["added_tokens"] = specials;
    file->eodId = !options.eodText.empty() ? vocabulary.idOf(options.eodText)
                  : specials.empty()       ? -1
                                           : specials[0]["id"].get<int32_t>();
    if (file->eodId < 0 && !options.eodText.empty())
      throw DataError(file->name, fmt::format("end token \"{}\" is not in the vocabulary", options.eodText));
    if (options.addBos)
      addBegin();
    return file;
  }

private:
  void addBegin() {
    for (const char *usual : {"<|begin_of_text|>", "<s>", "<|startoftext|>"})
      if (int32_t id = file->model.vocabulary.idOf(usual); id >= 0 && file->prefix.empty())
        file->prefix.push_back(id);
    if (file->prefix.empty())
      throw DataError(file->name, "has no token that begins a document");
  }
  std::shared_ptr<HfFile> file;
  int64_t firstId, nextId;
  nlohmann::json specials = nlohmann::json::array();
};

/// Reads lines of a base64 text, a space and a rank.
std::shared_ptr<const HfFile> readRanks(std::string_view text, const TokenizerOptions &options) {
  Builder builder(options.modelFile, 0);
  int64_t line = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view one = text.substr(at, end - at);
    at = end + 1;
    ++line;
    if (one.ends_with('\r'))
      one.remove_suffix(1);
    if (one.empty())
      continue;
    size_t space = std::min(one.find(' '), one.size());
    std::optional<std::string> bytes = fromBase64(one.substr(0, space));
    int64_t rank = -1;
    const char *last = one.data() + one.size();
    if (!bytes || space == one.size() ||
        std::from_chars(one.data() + space + 1, last, rank) != std::from_chars_result{last, std::errc()})
      throw DataError(options.modelFile, "want a base64 text, a space and a rank", line);
    builder.addToken(line, rank, *bytes);
  }
  const std::vector<Encoding> &known = encodings();
  auto found = std::ranges::find_if(known, [&](const Encoding &encoding) {
    return options.pattern.empty() ? encoding.ranks == builder.ranks() : encoding.name == options.pattern;
  });
  if (found == known.end() && options.pattern.empty())
    throw DataError(options.modelFile, fmt::format("{} ranks are of no known encoding; give --tiktoken-pattern: {}, or "
                                                   "a regular expression",
                                                   builder.ranks(), namesOfEncodings()));
  if (found == known.end())
    return builder.build(options.pattern, options);
  for (const Special &special : found->specials)
    builder.addSpecial(special.text, special.id);
  return builder.build(found->pattern, options);
}

/// Reads a tekken.json: its special tokens have the first ids, and default_vocab_size counts both.
std::shared_ptr<const HfFile> readTekken(std::string_view text, const TokenizerOptions &options) {
  const std::string &name = options.modelFile;
  nlohmann::json json = parseJsonFile(name, text);
  const nlohmann::json &config = fieldOf(json, "config"), &vocab = fieldOf(json, "vocab");
  auto specials = requiredField<int64_t>(name, config, "default_num_special_tokens");
  auto size = requiredField<int64_t>(name, config, "default_vocab_size");
  if (!vocab.is_array() || specials < 0 || specials > 100'000 || size <= specials ||
      size - specials > static_cast<int64_t>(vocab.size()))
    throw DataError(name, fmt::format("default_vocab_size {} is not the sum of default_num_special_tokens {} and at "
                                      "most {} entries of \"vocab\"",
                                      size, specials, vocab.is_array() ? vocab.size() : 0));
  // Files without "special_tokens" mean these texts.
  std::vector<std::string> texts = {"<unk>",
                                    "<s>",
                                    "</s>",
                                    "[INST]",
                                    "[/INST]",
                                    "[AVAILABLE_TOOLS]",
                                    "[/AVAILABLE_TOOLS]",
                                    "[TOOL_RESULTS]",
                                    "[/TOOL_RESULTS]",
                                    "[TOOL_CALLS]",
                                    "[IMG]",
                                    "<pad>",
                                    "[IMG_BREAK]",
                                    "[IMG_END]",
                                    "[PREFIX]",
                                    "[MIDDLE]",
                                    "[SUFFIX]",
                                    "[SYSTEM_PROMPT]",
                                    "[/SYSTEM_PROMPT]",
                                    "[TOOL_CONTENT]"};
  const nlohmann::json &named = fieldOf(json, "special_tokens");
  if (named.is_array())
    texts.clear();
  texts.resize(specials);
  if (named.is_array())
    for (const nlohmann::json &one : named)
      if (auto rank = requiredField<int64_t>(name, one, "rank"); rank >= 0 && rank < specials)
        texts[rank] = requiredField<std::string>(name, one, "token_str");
  Builder builder(name, specials);
  for (int64_t rank = 0; rank < size - specials; ++rank) {
    const nlohmann::json &entry = vocab[rank];
    std::optional<std::string> bytes = fromBase64(requiredField<std::string>(name, entry, "token_bytes"));
    if (!bytes)
      throw DataError(name, fmt::format("entry {} of \"vocab\": token_bytes is not base64", rank));
    builder.addToken(0, requiredField<int64_t>(name, entry, "rank"), *bytes);
  }
  if (specials > 2)
    builder.addSpecial(texts[2], 2); // it ends a document
  for (int64_t id = 0; id < specials; ++id)
    if (id != 2)
      builder.addSpecial(texts[id].empty() ? fmt::format("<SPECIAL_{}>", id) : texts[id], id);
  std::string pattern = requiredField<std::string>(name, config, "pattern");
  return builder.build(options.pattern.empty() ? pattern : options.pattern, options);
}

std::shared_ptr<const HfFile> readFile(const TokenizerOptions &options) {
  if (options.modelFile.empty())
    throw DataError("tokenizer tiktoken", "needs --tokenizer-model");
  std::string text = readWholeFile(options.modelFile, largestModelFile);
  return text.starts_with('{') ? readTekken(text, options) : readRanks(text, options);
}

} // namespace

std::unique_ptr<Tokenizer> openTiktokenTokenizer(const TokenizerOptions &options) {
  return makeHfTokenizer(readFile(options), options.addBos);
}

std::string tiktokenAsTokenizerJson(TokenizerOptions options) {
  options.specialTokens = true;
  options.addBos = false;
  std::shared_ptr<const HfFile> file = readFile(options);
  const BpeVocabulary &vocabulary = file->model.vocabulary;
  nlohmann::json vocab = nlohmann::json::object(), merges = nlohmann::json::array();
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.hasToken(id) || file->marks.contains(id))
      continue;
    vocab[vocabulary.textOf(id)] = id;
    for (auto [left, right] : vocabulary.halvesOf(id))
      merges.push_back({vocabulary.textOf(left), vocabulary.textOf(right)});
  }
  nlohmann::json json = file->json;
  json["version"] = "1.0";
  for (const char *name : {"truncation", "padding", "normalizer", "post_processor"})
    json[name] = nullptr;
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", true},
                   {"vocab", std::move(vocab)},
                   {"merges", std::move(merges)},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr}};
  return json.dump(1);
}

} // namespace espalier::rt
