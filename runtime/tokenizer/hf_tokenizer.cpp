// A tokenizer.json of BPE type. Added tokens are cut out; the text between them is normalized, cut into words and
// merged. A post-processor may add tokens around the result. The model is byte-level, or works on characters with a
// fallback to byte tokens (as in SentencePiece).
#include "runtime/files/mapped_file.h"
#include "runtime/tokenizer/byte_level_encoder.h"
#include "runtime/tokenizer/hf_added_tokens.h"
#include "runtime/tokenizer/hf_decoder.h"
#include "runtime/tokenizer/hf_json.h"
#include "runtime/tokenizer/hf_steps.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/utf8.h"

#include <filesystem>
#include <set>

namespace espalier::rt {

namespace {

constexpr uint64_t largestModelFile = uint64_t{1} << 30;

/// The parsed file, shared between threads. Steps hold scratch memory, so each thread builds its own steps from `json`.
struct HfFile {
  std::string name;
  nlohmann::json json; // without the model, which is in `vocabulary`
  BpeVocabulary vocabulary;
  bool takesWholeWords = false, fallsBackToBytes = false, fusesUnknown = false;
  int32_t unknownId = -1, eodId = -1;
  std::array<int32_t, 256> byteTokens; // <0x00> to <0xFF>, -1 where absent
  std::set<int32_t> marks;             // the special tokens
  std::vector<int32_t> prefix, suffix; // tokens that the post-processor adds
};

const nlohmann::json &fieldOf(const nlohmann::json &object, const char *name) {
  static const nlohmann::json null;
  auto found = object.find(name);
  return found == object.end() ? null : *found;
}

class HfTokenizer final : public Tokenizer {
public:
  HfTokenizer(std::shared_ptr<const HfFile> parsed, bool addsFrame)
      : file(std::move(parsed)), addsFrame(addsFrame),
        normalizer(readNormalizer(file->name, fieldOf(file->json, "normalizer"))),
        preTokenizer(readPreTokenizer(file->name, fieldOf(file->json, "pre_tokenizer"))),
        decoder(HfDecoder::read(file->name, fieldOf(file->json, "decoder"))), rawTokens(select(/*isNormalized=*/false)),
        normalizedTokens(select(/*isNormalized=*/true)),
        bytes(std::shared_ptr<const BpeVocabulary>(file, &file->vocabulary), file->takesWholeWords) {}

  void encode(std::string_view text, std::vector<int32_t> &ids) override {
    if (addsFrame)
      ids.insert(ids.end(), file->prefix.begin(), file->prefix.end());
    for (const AddedPiece &raw : rawTokens.cut(text)) {
      if (raw.id >= 0) {
        ids.push_back(raw.id);
        continue;
      }
      auto [normalized, keepsStart] = normalize(std::string(text.substr(raw.begin, raw.end - raw.begin)));
      for (const AddedPiece &piece : normalizedTokens.cut(normalized)) {
        std::string_view inner = std::string_view(normalized).substr(piece.begin, piece.end - piece.begin);
        if (piece.id >= 0)
          ids.push_back(piece.id);
        else
          encodePiece(inner, keepsStart && raw.begin == 0 && piece.begin == 0, ids);
      }
    }
    if (addsFrame)
      ids.insert(ids.end(), file->suffix.begin(), file->suffix.end());
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<std::string> tokens;
    for (int32_t id : ids) {
      if (!file->vocabulary.hasToken(id))
        throw DataError(file->name, fmt::format("id {} is no token, want 0 to {}", id, file->vocabulary.size() - 1));
      tokens.push_back(file->vocabulary.textOf(id));
    }
    return decoder.decode(std::move(tokens));
  }
  int64_t vocabSize() const override { return file->vocabulary.size(); }
  bool hasToken(int32_t id) const override { return file->vocabulary.hasToken(id); }
  int32_t eodToken() const override { return file->eodId; }
  std::string markOf(int32_t id) const override { return file->marks.contains(id) ? file->vocabulary.textOf(id) : ""; }
  std::unique_ptr<Tokenizer> clone() const override { return std::make_unique<HfTokenizer>(file, addsFrame); }

private:
  NormalText normalize(std::string text) const {
    size_t limit = largestNormalized(text.size());
    NormalText normal{std::move(text)};
    for (const auto &step : normalizer) {
      step->apply(normal);
      if (normal.text.size() > limit)
        throw DataError(file->name, fmt::format("the normalizer makes {} bytes of a text", normal.text.size()));
    }
    return normal;
  }

  /// Returns the added tokens to match after or before normalization. Tokens to match afterwards are normalized
  /// themselves.
  std::vector<AddedToken> select(bool isNormalized) const {
    std::vector<AddedToken> chosen;
    for (AddedToken &token : readAddedTokens(file->name, fieldOf(file->json, "added_tokens"))) {
      if (token.isNormalized != isNormalized)
        continue;
      if (isNormalized)
        token.text = normalize(token.text).text;
      if (!token.text.empty())
        chosen.push_back(std::move(token));
    }
    return chosen;
  }

  void encodePiece(std::string_view text, bool isFirst, std::vector<int32_t> &ids) {
    if (preTokenizer.isPlainGpt2) {
      bytes.encodeText(text, ids);
      return;
    }
    std::vector<TextPiece> pieces = {{std::string(text), isFirst}}, next;
    for (const auto &step : preTokenizer.steps) {
      next.clear();
      for (TextPiece &piece : pieces)
        step->apply(std::move(piece), next);
      pieces.swap(next);
    }
    for (const TextPiece &piece : pieces)
      if (preTokenizer.isByteLevel)
        bytes.encodeWord(piece.text, 0, piece.text.size(), ids);
      else
        encodeChars(piece.text, ids);
  }

  void encodeChars(const std::string &word, std::vector<int32_t> &ids) {
    if (word.empty())
      return;
    if (file->takesWholeWords)
      if (int32_t id = file->vocabulary.idOf(word); id >= 0) {
        ids.push_back(id);
        return;
      }
    symbols.clear();
    bool isAfterUnknown = false;
    for (size_t at = 0; at < word.size();) {
      size_t length = decodeUtf8(word, at).bytes;
      int32_t id = file->vocabulary.idOf(word.substr(at, length));
      bool isUnknown = id < 0 && !appendBytes(word, at, length);
      if (id >= 0)
        symbols.push_back(id);
      else if (isUnknown && file->unknownId >= 0 && !(file->fusesUnknown && isAfterUnknown))
        symbols.push_back(file->unknownId);
      isAfterUnknown = isUnknown;
      at += length;
    }
    file->vocabulary.merges().apply(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

  bool appendBytes(const std::string &word, size_t at, size_t length) {
    if (!file->fallsBackToBytes)
      return false;
    for (size_t k = 0; k < length; ++k)
      if (file->byteTokens[static_cast<uint8_t>(word[at + k])] < 0)
        return false;
    for (size_t k = 0; k < length; ++k)
      symbols.push_back(file->byteTokens[static_cast<uint8_t>(word[at + k])]);
    return true;
  }

  std::shared_ptr<const HfFile> file;
  bool addsFrame;
  std::vector<std::unique_ptr<NormalizerStep>> normalizer;
  PreTokenizer preTokenizer;
  HfDecoder decoder;
  AddedTokenFinder rawTokens, normalizedTokens;
  ByteLevelEncoder bytes;
  std::vector<int32_t> symbols;
};

void readMerges(HfFile &file, const nlohmann::json &merges) {
  if (!merges.is_array())
    throw DataError(file.name, "the model has no list of merges");
  for (const nlohmann::json &merge : merges) {
    // Older files write "left right", newer ones ["left", "right"].
    if (merge.is_string()) {
      std::string text = merge.get<std::string>();
      size_t space = text.find(' ');
      if (space == std::string::npos)
        throw DataError(file.name, fmt::format("merge \"{}\" has no space", text.substr(0, 60)));
      file.vocabulary.addMerge(file.name, 0, text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      file.vocabulary.addMerge(file.name, 0, merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      throw DataError(file.name, "a merge is neither a string nor a pair of strings");
    }
  }
}

void readModel(HfFile &file, const nlohmann::json &model) {
  std::string type = fieldOr<std::string>(file.name, model, "type", "BPE");
  if (type != "BPE")
    throw DataError(file.name, fmt::format("model of type {}, only BPE is read", type));
  for (const char *affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!fieldOr<std::string>(file.name, model, affix, "").empty())
      throw DataError(file.name, fmt::format("a model with {} is not read", affix));
  auto dropout = model.find("dropout");
  if (dropout != model.end() && !dropout->is_null() && *dropout != 0.0)
    throw DataError(file.name, "a model with dropout gives other ids each time; set it to null");
  file.vocabulary = BpeVocabulary::fromJson(file.name, fieldOf(model, "vocab"));
  readMerges(file, fieldOf(model, "merges"));
  file.takesWholeWords = fieldOr(file.name, model, "ignore_merges", false);
  file.fallsBackToBytes = fieldOr(file.name, model, "byte_fallback", false);
  file.fusesUnknown = fieldOr(file.name, model, "fuse_unk", false);
  std::string unknown = fieldOr<std::string>(file.name, model, "unk_token", "");
  file.unknownId = unknown.empty() ? -1 : file.vocabulary.idOf(unknown);
  if (!unknown.empty() && file.unknownId < 0)
    throw DataError(file.name, fmt::format("unk_token \"{}\" is not in the vocabulary", unknown));
  for (int byte = 0; byte < 256; ++byte)
    file.byteTokens[byte] = file.vocabulary.idOf(fmt::format("<0x{:02X}>", byte));
}

/// Reads the tokens that a TemplateProcessing adds before and after a text.
void readTemplate(HfFile &file, const nlohmann::json &step) {
  if (!fieldOf(step, "single").is_array() || !fieldOf(step, "special_tokens").is_object())
    throw DataError(file.name, "a TemplateProcessing without single or special_tokens");
  bool isBefore = true;
  for (const nlohmann::json &item : step["single"]) {
    if (item.contains("Sequence")) {
      isBefore = false;
      continue;
    }
    std::string name = requiredField<std::string>(file.name, fieldOf(item, "SpecialToken"), "id");
    const nlohmann::json &ids = fieldOf(fieldOf(step["special_tokens"], name.c_str()), "ids");
    if (!ids.is_array())
      throw DataError(file.name, fmt::format("the template's token \"{}\" has no ids", name));
    for (const nlohmann::json &id : ids) {
      if (!id.is_number_integer() || !file.vocabulary.hasToken(id.get<int32_t>()))
        throw DataError(file.name, fmt::format("the template's token \"{}\" has no valid id", name));
      (isBefore ? file.prefix : file.suffix).push_back(id.get<int32_t>());
    }
  }
}

void readPostProcessor(HfFile &file, const nlohmann::json &step, int depth) {
  if (step.is_null())
    return;
  std::string type = requiredField<std::string>(file.name, step, "type");
  if (type == "Sequence" && depth < deepestSequence && fieldOf(step, "processors").is_array()) {
    for (const nlohmann::json &one : step["processors"])
      readPostProcessor(file, one, depth + 1);
  } else if (type == "TemplateProcessing") {
    readTemplate(file, step);
  } else if (type != "ByteLevel") { // ByteLevel only trims offsets, which are not computed
    throw DataError(file.name, fmt::format("post-processor \"{}\" is not read", type));
  }
}

void findEndOfDocument(HfFile &file, const std::string &wanted) {
  if (!wanted.empty()) {
    file.eodId = file.vocabulary.idOf(wanted);
    if (file.eodId < 0)
      throw DataError(file.name, fmt::format("end token \"{}\" is not in the vocabulary", wanted));
    return;
  }
  for (const char *usual : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"})
    if (file.eodId < 0)
      file.eodId = file.vocabulary.idOf(usual);
}

} // namespace

std::unique_ptr<Tokenizer> openHfTokenizer(const TokenizerOptions &options) {
  if (options.modelFile.empty())
    throw DataError("tokenizer hf", "needs --tokenizer-model");
  auto file = std::make_shared<HfFile>();
  bool isFolder = std::filesystem::is_directory(options.modelFile); // a folder of transformers, as in Megatron
  file->name = isFolder ? (std::filesystem::path(options.modelFile) / "tokenizer.json").string() : options.modelFile;
  file->json = parseJsonFile(file->name, readWholeFile(file->name, largestModelFile));
  if (!file->json.is_object() || !fieldOf(file->json, "model").is_object())
    throw DataError(file->name, "no \"model\" field; this is no tokenizer.json");
  readModel(*file, file->json["model"]);
  file->json.erase("model");
  int64_t limit = 2 * file->vocabulary.size() + 4096;
  for (const AddedToken &token : readAddedTokens(file->name, fieldOf(file->json, "added_tokens"))) {
    if (token.id >= limit)
      throw DataError(file->name,
                      fmt::format("added token \"{}\" has id {}, want 0 to {}", token.text, token.id, limit - 1));
    file->vocabulary.setToken(token.id, token.text);
    if (token.isSpecial)
      file->marks.insert(token.id);
  }
  readPostProcessor(*file, fieldOf(file->json, "post_processor"), 0);
  findEndOfDocument(*file, options.eodText);
  return std::make_unique<HfTokenizer>(std::move(file), options.specialTokens);
}

} // namespace espalier::rt
