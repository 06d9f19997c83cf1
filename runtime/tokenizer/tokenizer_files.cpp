#include "runtime/tokenizer/tokenizer_files.h"

#include "messages/data_error.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/mapped_file.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/tiktoken.h"
#include "runtime/tokenizer/train_bpe.h"
#include "runtime/utf8.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr const char *configName = "tokenizer_config.json", *endOfText = "<|endoftext|>";
constexpr uint64_t mostBytes = uint64_t(1) << 30;

constexpr std::array<const char *, 12> names = {"tekken.json",
                                                "tiktoken.model",
                                                "qwen.tiktoken",
                                                "tokenizer.json",
                                                "tokenizer.model",
                                                "vocab.json",
                                                "merges.txt",
                                                configName,
                                                "special_tokens_map.json",
                                                "added_tokens.json",
                                                "chat_template.jinja",
                                                "generation_config.json"};
constexpr std::span<const char *const> rankNames(names.data(), 3); // of the kind tiktoken

/// Returns tokenizer_config.json as an object; an empty one if the folder has none. Throws DataError.
Json configOf(const std::vector<SideFile> &files, const std::string &place) {
  auto found = std::ranges::find(files, configName, &SideFile::name);
  if (found == files.end())
    return Json::object();
  Json config = Json::parse(found->bytes, nullptr, false);
  if (!config.is_object())
    throw DataError(place + "/" + configName, "not a JSON object");
  return config;
}

void setConfig(std::vector<SideFile> &files, const Json &config) {
  std::erase_if(files, [](const SideFile &file) { return file.name == configName; });
  if (!config.empty())
    files.push_back({configName, config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"});
}

/// Returns the files that the options name, and those that belong to them in the same folder.
std::vector<SideFile> givenFiles(const TokenizerOptions &options) {
  if (options.kind == "gpt2")
    return {{"vocab.json", readWholeFile(options.vocabFile, mostBytes)},
            {"merges.txt", readWholeFile(options.mergeFile, mostBytes)}};
  if (options.kind == "tiktoken")
    return {{"tokenizer.json", tiktokenAsTokenizerJson(options)}};
  std::string name = options.kind == "hf" ? "tokenizer.json" : "tokenizer.model";
  Path file = options.modelFile;
  if (std::filesystem::is_directory(file))
    return tokenizerFilesIn(file);
  if (file.filename() != name) // files beside it may belong to another tokenizer
    return {{name, readWholeFile(file.string(), mostBytes)}};
  return tokenizerFilesIn(file.has_parent_path() ? file.parent_path() : ".");
}

const char *classOf(const std::string &kind) {
  return kind == "gpt2" ? "GPT2Tokenizer" : kind == "sentencepiece" ? "LlamaTokenizer" : "PreTrainedTokenizerFast";
}

/// Returns whether transformers begins a text with a token where the options do not.
bool leavesOutBos(TokenizerOptions options) {
  if (options.kind == "sentencepiece")
    return !options.addBos;
  if (options.kind != "hf" || options.specialTokens)
    return false;
  options.specialTokens = true;
  return !openTokenizer(options)->encode("").empty();
}

} // namespace

std::span<const char *const> tokenizerFileNames() { return names; }

std::vector<SideFile> tokenizerFilesIn(const Path &folder) {
  std::vector<SideFile> files;
  for (const char *name : names)
    if (Path file = folder / name; isRegularFile(file.string()))
      files.push_back({name, readWholeFile(file.string(), mostBytes)});
  return files;
}

std::optional<TokenizerOptions> tokenizerIn(const Path &folder) {
  auto has = [&](const char *name) { return isRegularFile((folder / name).string()); };
  auto pathOf = [&](const char *name) { return (folder / name).string(); };
  TokenizerOptions options;
  if (has("tokenizer.json")) {
    options.kind = "hf";
    options.modelFile = pathOf("tokenizer.json");
  } else if (has("tokenizer.model")) {
    options.kind = "sentencepiece";
    options.modelFile = pathOf("tokenizer.model");
  } else if (has("vocab.json") && has("merges.txt")) {
    options.kind = "gpt2";
    options.vocabFile = pathOf("vocab.json");
    options.mergeFile = pathOf("merges.txt");
  } else if (auto ranks = std::ranges::find_if(rankNames, has); ranks != rankNames.end()) {
    options.kind = "tiktoken";
    options.modelFile = pathOf(*ranks);
  } else {
    return std::nullopt;
  }
  std::vector<SideFile> config;
  if (has(configName))
    config.push_back({configName, readWholeFile(pathOf(configName), mostBytes)});
  Json fields = configOf(config, folder.string());
  bool addsBos = !fields.contains("add_bos_token") || fields["add_bos_token"] != false;
  options.specialTokens = options.kind != "hf" || addsBos;
  options.addBos = options.kind == "sentencepiece" && addsBos;
  if (Json eos = fields.value("eos_token", Json()); options.kind == "hf" || options.kind == "tiktoken")
    options.eodText = eos.is_string() ? eos.get<std::string>() : eos.is_object() ? eos.value("content", "") : "";
  return options;
}

std::vector<SideFile> tokenizerFilesOf(const TokenizerOptions &given, const ChatTemplatePtr &chat) {
  TokenizerOptions options = withOwnKind(given);
  if (options.kind == "null")
    return {};
  if (options.kind == "bytes")
    return byteTokenizerFiles(/*endsDocuments=*/true);
  std::vector<SideFile> files = givenFiles(options);
  Json config = configOf(files, options.modelFile);
  if (!config.contains("tokenizer_class"))
    config["tokenizer_class"] = classOf(options.kind);
  std::unique_ptr<Tokenizer> tokenizer = openTokenizer(options);
  std::string eos = tokenizer->eodToken() < 0 ? "" : tokenizer->decode(std::array{tokenizer->eodToken()});
  if (!eos.empty() && (!config.contains("eos_token") || !options.eodText.empty()))
    config["eos_token"] = eos;
  if (!chat && leavesOutBos(options)) // conversations have their tokens from the template
    config["add_bos_token"] = false;
  if (chat) {
    config["chat_template"] = chat->source;
    std::erase_if(files, [](const SideFile &file) { return file.name == "chat_template.jinja"; });
    if (const std::string &bos = chat->bos; !bos.empty() && !config.contains("bos_token"))
      config["bos_token"] = bos;
  }
  setConfig(files, config);
  return files;
}

std::vector<SideFile> byteTokenizerFiles(bool endsDocuments) {
  TrainedBpe bytes;
  for (char32_t character : byteLevelChars()) {
    bytes.tokens.emplace_back();
    appendUtf8(character, bytes.tokens.back());
  }
  Json config = {{"tokenizer_class", classOf("hf")}};
  std::string text = toTokenizerJson(bytes);
  if (endsDocuments) {
    Json file = Json::parse(text);
    file["added_tokens"].push_back({{"id", 256},
                                    {"content", endOfText},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
    text = file.dump(2);
    config["eos_token"] = endOfText;
  }
  std::vector<SideFile> files = {{"tokenizer.json", text}};
  setConfig(files, config);
  return files;
}

Path tokenizerFolderOf(const std::string &dataPrefix) { return dataPrefix + ".tokenizer"; }

void writeTokenizerFolder(const Path &folder, const std::vector<SideFile> &files) {
  std::error_code error;
  for (const char *name : names)
    std::filesystem::remove(folder / name, error);
  if (files.empty()) {
    std::filesystem::remove(folder, error); // another folder of this name has files of its own and stays
    return;
  }
  std::filesystem::create_directories(folder, error);
  if (error)
    throw DataError(folder.string(), fmt::format("cannot be made a folder: {}", error.message()));
  for (const SideFile &file : files)
    writeWhole(folder / file.name, file.bytes);
}

} // namespace espalier::rt
