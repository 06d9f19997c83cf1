// llama.cpp cuts texts with patterns of its own, which tokenizer.ggml.pre names. A tokenizer.json with another pattern
// is refused, because its texts would be cut otherwise.
#include "messages/json_reason.h"
#include "runtime/checkpoint/convert/gguf.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using Json = nlohmann::json;

/// llama.cpp's types of tokens.
enum TokenType : int32_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

/// The tokens of a file, by id.
struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;

  void set(int64_t id, const std::string &text, int32_t type) {
    if (id < 0 || id >= static_cast<int64_t>(texts.size()))
      throw PlanError(fmt::format("tokenizer.json: token \"{}\" has id {}, and the token table has {} rows",
                                  text.substr(0, 60), id, texts.size()));
    texts[static_cast<size_t>(id)] = text;
    types[static_cast<size_t>(id)] = type;
  }
};

/// The patterns of published tokenizers, by llama.cpp's name.
constexpr std::pair<const char *, const char *> patterns[] = {
    {"llama-bpe", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                  R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
              R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"gpt-4o", R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
               R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
               R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
               R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"tekken", R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
               R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
               R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

/// Returns the type of a step, and its pattern if it is a Split.
std::string describeStep(const Json &step) {
  std::string type = step.value("type", "");
  if (type == "Split")
    return step.at("pattern").value("Regex", "");
  if (type == "ByteLevel" && step.value("add_prefix_space", true))
    return "ByteLevel with a space";
  if (type == "ByteLevel")
    return step.value("use_regex", true) ? "ByteLevel" : "";
  return type == "Digits" && step.value("individual_digits", false) ? "Digits" : type;
}

/// Returns llama.cpp's name of a byte-level pre-tokenizer, or nothing if it has none.
std::string preTokenizerOf(const Json &field) {
  std::vector<std::string> steps;
  if (field.value("type", "") == "Sequence")
    for (const Json &step : field.at("pretokenizers"))
      steps.push_back(describeStep(step));
  else
    steps.push_back(describeStep(field));
  std::erase(steps, "");
  if (steps == std::vector<std::string>{"ByteLevel"})
    return "gpt-2";
  if (steps == std::vector<std::string>{"Digits", "ByteLevel"})
    return "smollm";
  for (const auto &[name, pattern] : patterns)
    if (steps == std::vector<std::string>{pattern})
      return name;
  return "";
}

std::string contentOf(const Json &config, const char *key) {
  Json token = config.value(key, Json());
  return token.is_string() ? token.get<std::string>() : token.is_object() ? token.value("content", "") : "";
}

/// Adds the ids of the special tokens that tokenizer_config.json names, and the chat template.
void addSpecials(const Tokens &tokens, const Json &config, const std::string &jinja, const Json &tokenizer,
                 GgufKeys &keys) {
  constexpr std::pair<const char *, const char *> names[] = {
      {"bos_token", "bos"}, {"eos_token", "eos"}, {"unk_token", "unknown"}, {"pad_token", "padding"}};
  for (const auto &[key, name] : names) {
    std::string text = contentOf(config, key);
    auto found = std::ranges::find(tokens.texts, text);
    if (!text.empty() && found != tokens.texts.end())
      keys.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", name),
                        static_cast<uint32_t>(found - tokens.texts.begin()));
  }
  std::string bos = contentOf(config, "bos_token");
  bool isFramed =
      !bos.empty() && tokenizer.value("post_processor", Json()).dump().find(Json(bos).dump()) != std::string::npos;
  Json given = config.value("add_bos_token", Json());
  keys.emplace_back("tokenizer.ggml.add_bos_token", given.is_boolean() ? given.get<bool>() : isFramed);
  std::string chat = jinja;
  if (config.value("chat_template", Json()).is_string() && chat.empty())
    chat = config["chat_template"].get<std::string>();
  if (!chat.empty())
    keys.emplace_back("tokenizer.chat_template", chat);
}

/// Returns "left right" of a merge, which files write in two ways.
std::string mergeText(const Json &merge) {
  return merge.is_string() ? merge.get<std::string>()
                           : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>();
}

/// Adds a model of SentencePiece's form: the earlier a merge makes a token, the higher its score.
void addScores(const Json &tokenizer, const Json &merges, Tokens &tokens, GgufKeys &keys) {
  std::map<std::string, float> scores;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    std::string text = mergeText(merges[rank]);
    text.erase(text.find(' '), 1);
    scores.try_emplace(text, -static_cast<float>(rank));
  }
  std::vector<float> ofTokens;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    auto found = scores.find(tokens.texts[id]);
    ofTokens.push_back(found == scores.end() ? -static_cast<float>(merges.size()) : found->second);
    bool isByte = tokens.texts[id].size() == 6 && tokens.texts[id].starts_with("<0x");
    tokens.types[id] = isByte ? Byte : tokens.types[id];
  }
  keys.emplace_back("tokenizer.ggml.model", "llama");
  keys.emplace_back("tokenizer.ggml.pre", "default");
  keys.emplace_back("tokenizer.ggml.scores", ofTokens);
  std::string steps = tokenizer.value("normalizer", Json()).dump() + tokenizer.value("pre_tokenizer", Json()).dump();
  bool addsSpace = steps.find("\"Prepend\"") != std::string::npos || steps.find("\"always\"") != std::string::npos ||
                   steps.find("\"first\"") != std::string::npos;
  keys.emplace_back("tokenizer.ggml.add_space_prefix", addsSpace);
}

const SideFile *find(const std::vector<SideFile> &files, const std::string &name) {
  auto found = std::ranges::find(files, name, &SideFile::name);
  return found == files.end() ? nullptr : &*found;
}

GgufKeys keysOf(const std::vector<SideFile> &files, int64_t rows) {
  const SideFile *file = find(files, "tokenizer.json"), *config = find(files, "tokenizer_config.json"),
                 *jinja = find(files, "chat_template.jinja");
  auto refuse = [](const std::string &what) {
    throw PlanError(fmt::format("tokenizer.json: {}, which llama.cpp does not have; remove the tokenizer from the "
                                "folder for a file without one",
                                what));
  };
  if (!file && (find(files, "tokenizer.model") || find(files, "vocab.json")))
    throw PlanError("the folder has no tokenizer.json, the one form of tokenizer that is written to GGUF; transformers "
                    "writes it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
  if (!file)
    return {{"tokenizer.ggml.model", "none"}};
  Json tokenizer = Json::parse(file->bytes);
  const Json &model = tokenizer.at("model");
  if (model.value("type", "BPE") != "BPE")
    refuse("its model is of the type " + model["type"].dump());
  Tokens tokens;
  for (int64_t id = 0; id < rows; ++id) {
    tokens.texts.push_back(fmt::format("[PAD{}]", id));
    tokens.types.push_back(Unused);
  }
  for (const auto &[text, id] : model.at("vocab").items())
    tokens.set(id.get<int64_t>(), text, Normal);
  for (const Json &added : tokenizer.value("added_tokens", Json::array()))
    tokens.set(added.at("id").get<int64_t>(), added.at("content").get<std::string>(),
               !added.value("special", false)                         ? UserDefined
               : added["content"] == model.value("unk_token", Json()) ? Unknown
                                                                      : Control);
  GgufKeys keys;
  const Json &merges = model.at("merges");
  if (model.value("byte_fallback", false)) {
    addScores(tokenizer, merges, tokens, keys);
  } else {
    std::string name = preTokenizerOf(tokenizer.value("pre_tokenizer", Json::object()));
    Json normalizer = tokenizer.value("normalizer", Json());
    if (name.empty())
      refuse("its pre-tokenizer is " + tokenizer.value("pre_tokenizer", Json()).dump().substr(0, 300));
    if (!normalizer.is_null() && normalizer.value("type", "") != "NFC") // as llama.cpp's own converter
      refuse("its normalizer is " + normalizer.dump().substr(0, 300));
    std::vector<std::string> lines;
    for (const Json &merge : merges)
      lines.push_back(mergeText(merge));
    keys = {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", name}, {"tokenizer.ggml.merges", lines}};
  }
  keys.emplace_back("tokenizer.ggml.tokens", tokens.texts);
  keys.emplace_back("tokenizer.ggml.token_type", tokens.types);
  addSpecials(tokens, config ? Json::parse(config->bytes) : Json::object(), jinja ? jinja->bytes : "", tokenizer, keys);
  return keys;
}

} // namespace

std::string ggufPattern(const std::string &preTokenizer) {
  for (const auto &[name, pattern] : patterns)
    if (preTokenizer == name)
      return pattern;
  return "";
}

GgufKeys ggufTokenizer(const std::vector<SideFile> &files, int64_t rows) {
  try {
    return keysOf(files, rows);
  } catch (const Json::exception &problem) {
    throw PlanError(fmt::format("tokenizer.json: damaged: {}", jsonReason(problem)));
  }
}

} // namespace espalier::rt
