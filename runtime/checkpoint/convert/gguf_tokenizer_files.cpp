// The tokenizer of a GGUF file as files of transformers. A model of SentencePiece's form becomes merges: each pair of
// tokens that makes a token, ordered by the scores of the tokens that they make.
#include "runtime/checkpoint/convert/gguf_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace espalier::rt {
namespace {

using Json = nlohmann::json;

constexpr double normalType = 1, unknownType = 2, controlType = 3, userType = 4, unusedType = 5;
constexpr const char *space = "▁";

/// The pre-tokenizers of llama.cpp that cut texts as another one does.
constexpr std::pair<const char *, const char *> sameCuts[] = {
    {"llama3", "llama-bpe"}, {"llama-v3", "llama-bpe"}, {"dbrx", "llama-bpe"}, {"deepseek-r1-qwen", "qwen2"},
    {"starcoder", "smollm"}, {"refact", "smollm"},      {"olmo", "gpt-2"}};

/// The keys of a tokenizer.
struct Held {
  const GgufFile &file;
  std::vector<std::string> tokens;
  std::vector<double> types;

  std::string key(const char *name) const { return fmt::format("tokenizer.ggml.{}", name); }
  const GgufRead &list(const char *name) const {
    static const GgufRead none;
    auto found = file.keys().find(key(name));
    return found == file.keys().end() ? none : found->second;
  }
  bool flag(const char *name, bool otherwise) const { return file.number(key(name)).value_or(otherwise) != 0; }
  /// Returns the text of the token whose id a key has, or nothing.
  std::string tokenAt(const char *name) const {
    std::optional<double> id = file.number(key(name));
    bool isThere = id && *id >= 0 && *id < static_cast<double>(tokens.size());
    return isThere ? tokens[static_cast<size_t>(*id)] : "";
  }
  /// Returns the token for what the others do not cover, or nothing.
  std::string unknown() const {
    auto found = std::ranges::find(types, unknownType);
    std::string named = tokenAt("unknown_token_id");
    return named.empty() && found != types.end() ? tokens[static_cast<size_t>(found - types.begin())] : named;
  }
  bool isFiller(size_t id) const { return types[id] == unusedType && tokens[id].starts_with("[PAD"); }
};

Json byteLevel() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}

/// Returns the pre-tokenizer that llama.cpp names, or null if it is not known.
Json preTokenizerNamed(const std::string &name) {
  Json bytes = byteLevel(), steps = Json::array();
  if (std::string pattern = ggufPattern(name); !pattern.empty()) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  } else if (name == "gpt-2" || name == "smollm") {
    if (name == "smollm")
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    bytes["use_regex"] = true;
  } else {
    return nullptr;
  }
  steps.push_back(bytes);
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

/// The bytes of a token with a score. All its cuts in two are looked up, which takes the square of its length; the
/// longest tokens of Gemma have 93.
constexpr size_t mostTokenBytes = 256;

/// Returns the merges of a model with scores. Throws PlanError if a score is no number or a token is too long.
Json mergesByScore(const Held &held) {
  const std::vector<double> &scores = held.list("scores").numbers;
  if (scores.size() != held.tokens.size())
    throw PlanError(fmt::format("{}: has {} scores of {} tokens", held.file.file().path().string(), scores.size(),
                                held.tokens.size()));
  for (size_t id = 0; id < scores.size(); ++id)
    if (std::isnan(scores[id]) || held.tokens[id].size() > mostTokenBytes)
      throw PlanError(fmt::format("{}: token {} has {} bytes and the score {}; wanted at most {} bytes and a number",
                                  held.file.file().path().string(), id, held.tokens[id].size(), scores[id],
                                  mostTokenBytes));
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < held.tokens.size(); ++id)
    if (held.types[id] == normalType)
      ids.emplace(held.tokens[id], id);
  std::vector<size_t> order;
  for (const auto &[text, id] : ids)
    order.push_back(id);
  std::ranges::sort(order, [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  Json merges = Json::array();
  for (size_t id : order) {
    std::string_view text = held.tokens[id];
    for (size_t at = 1; at < text.size(); ++at)
      if (ids.contains(text.substr(0, at)) && ids.contains(text.substr(at)))
        merges.push_back({text.substr(0, at), text.substr(at)});
  }
  return merges;
}

/// Describes a model of SentencePiece's form.
void describeScored(const Held &held, Json &tokenizer) {
  bool addsSpace = held.flag("add_space_prefix", true);
  Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}};
  Json prepend = {{"type", "Prepend"}, {"prepend", space}};
  tokenizer["normalizer"] = addsSpace ? Json{{"type", "Sequence"}, {"normalizers", {prepend, replace}}} : replace;
  Json steps = {{{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (addsSpace)
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  tokenizer["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
  Json &model = tokenizer["model"];
  model["byte_fallback"] = true;
  model["fuse_unk"] = true;
  model["merges"] = mergesByScore(held);
  if (std::string unknown = held.unknown(); !unknown.empty())
    model["unk_token"] = unknown;
}

/// Describes a byte-level model. Returns false if its pre-tokenizer is not known.
bool describeByteLevel(const Held &held, Json &tokenizer) {
  std::string name = held.file.text(held.key("pre"));
  bool keepsWords = name.starts_with("llama") || name == "tekken"; // a word that is a token is not merged anew
  for (const auto &[other, same] : sameCuts)
    name = name == other ? same : name;
  tokenizer["pre_tokenizer"] = preTokenizerNamed(name);
  tokenizer["decoder"] = byteLevel();
  tokenizer["model"]["ignore_merges"] = keepsWords;
  tokenizer["model"]["merges"] = held.list("merges").texts;
  return !tokenizer["pre_tokenizer"].is_null();
}

/// Returns the step that begins a text with a token.
Json beginWith(const std::string &token, double id) {
  Json special = {{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  auto sequence = [](const char *name, int type) { return Json{{"Sequence", {{"id", name}, {"type_id", type}}}}; };
  return {
      {"type", "TemplateProcessing"},
      {"single", {special, sequence("A", 0)}},
      {"pair", {special, sequence("A", 0), sequence("B", 1)}},
      {"special_tokens",
       {{token, {{"id", token}, {"ids", Json::array({static_cast<int64_t>(id)})}, {"tokens", Json::array({token})}}}}}};
}

Json addedToken(size_t id, const std::string &text, bool isSpecial) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", isSpecial}};
}

/// Returns tokenizer_config.json, and sets the step that begins texts.
Json configOf(const Held &held, bool isScored, Json &tokenizer) {
  constexpr std::pair<const char *, const char *> names[] = {{"bos_token", "bos_token_id"},
                                                             {"eos_token", "eos_token_id"},
                                                             {"unk_token", "unknown_token_id"},
                                                             {"pad_token", "padding_token_id"}};
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto &[key, name] : names)
    if (std::string token = held.tokenAt(name); !token.empty())
      config[key] = token;
  bool isLlama3 = held.file.text(held.key("pre")).starts_with("llama");
  bool addsBos = held.flag("add_bos_token", isScored || isLlama3) && config.contains("bos_token");
  config["add_bos_token"] = addsBos;
  if (addsBos)
    tokenizer["post_processor"] =
        beginWith(config["bos_token"].get<std::string>(), *held.file.number(held.key("bos_token_id")));
  if (std::string chat = held.file.text("tokenizer.chat_template"); !chat.empty())
    config["chat_template"] = chat;
  return config;
}

std::vector<SideFile> leaveOut(const GgufFile &file, const std::string &why) {
  fmt::print(stderr, "{}: note: its tokenizer is left out: {}; --tokenizer names another\n",
             file.file().path().string(), why);
  return {};
}

} // namespace

std::vector<SideFile> tokenizerFilesInGguf(const std::filesystem::path &path) {
  GgufFile file(path);
  Held held{file, {}, {}};
  std::string model = file.text(held.key("model")), place = path.string();
  if (model.empty() || model == "none" || model == "no_vocab")
    return {};
  bool isScored = model == "llama";
  if (!isScored && model != "gpt2")
    return leaveOut(file, fmt::format("its model is {}, and llama and gpt2 are known", model));
  held.tokens = held.list("tokens").texts;
  held.types = held.list("token_type").numbers;
  if (held.types.empty())
    held.types.assign(held.tokens.size(), normalType);
  if (held.types.size() != held.tokens.size())
    throw PlanError(
        fmt::format("{}: has types of {} tokens, and {} tokens", place, held.types.size(), held.tokens.size()));
  Json added = Json::array(), vocab = Json::object();
  const std::string unknown = held.unknown();
  for (size_t id = 0; id < held.tokens.size(); ++id) {
    if (held.isFiller(id))
      continue;
    vocab.emplace(held.tokens[id], id);
    bool isUnknown = held.tokens[id] == unknown;
    if (held.types[id] == controlType || held.types[id] == userType || isUnknown)
      added.push_back(addedToken(id, held.tokens[id], held.types[id] != userType));
  }
  Json tokenizer = {{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
                    {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", nullptr},
                    {"post_processor", nullptr}, {"decoder", nullptr}};
  tokenizer["model"] = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false},
                        {"vocab", std::move(vocab)}};
  if (isScored)
    describeScored(held, tokenizer);
  else if (!describeByteLevel(held, tokenizer))
    return leaveOut(file, fmt::format("the cuts of the pre-tokenizer '{}' are not known", file.text(held.key("pre"))));
  Json config = configOf(held, isScored, tokenizer);
  auto textOf = [](const Json &json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; };
  return {{"tokenizer.json", textOf(tokenizer)}, {"tokenizer_config.json", textOf(config)}};
}

} // namespace espalier::rt
