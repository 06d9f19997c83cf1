// A tokenizer.json. Added tokens are cut out; the text between them is normalized, cut into words, and the model gives
// the ids of each word. A post-processor may add tokens around the result.
#include "runtime/files/mapped_file.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/byte_level_encoder.h"
#include "runtime/tokenizer/hf_added_tokens.h"
#include "runtime/tokenizer/hf_decoder.h"
#include "runtime/tokenizer/hf_file.h"
#include "runtime/tokenizer/hf_json.h"
#include "runtime/tokenizer/hf_steps.h"

#include <filesystem>

namespace espalier::rt {

namespace {

constexpr uint64_t largestModelFile = uint64_t{1} << 30;

class HfTokenizer final : public Tokenizer {
public:
  HfTokenizer(std::shared_ptr<const HfFile> parsed, bool addsFrame)
      : file(std::move(parsed)), addsFrame(addsFrame),
        normalizer(readNormalizer(file->name, fieldOf(file->json, "normalizer"))),
        preTokenizer(readPreTokenizer(file->name, fieldOf(file->json, "pre_tokenizer"))),
        decoder(HfDecoder::read(file->name, fieldOf(file->json, "decoder"))), rawTokens(select(/*isNormalized=*/false)),
        normalizedTokens(select(/*isNormalized=*/true)),
        bytes(std::shared_ptr<const BpeVocabulary>(file, &file->model.vocabulary), file->model.takesWholeWords) {}

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
      if (!file->model.vocabulary.hasToken(id))
        throw DataError(file->name,
                        fmt::format("id {} is no token, want 0 to {}", id, file->model.vocabulary.size() - 1));
      tokens.push_back(file->model.vocabulary.textOf(id));
    }
    return decoder.decode(std::move(tokens));
  }
  int64_t vocabSize() const override { return file->model.vocabulary.size(); }
  bool hasToken(int32_t id) const override { return file->model.vocabulary.hasToken(id); }
  int32_t eodToken() const override { return file->eodId; }
  std::string markOf(int32_t id) const override {
    return file->marks.contains(id) ? file->model.vocabulary.textOf(id) : "";
  }
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
    if (preTokenizer.isPlainGpt2 && file->model.isBpe) {
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
      if (preTokenizer.isByteLevel && file->model.isBpe)
        bytes.encodeWord(piece.text, 0, piece.text.size(), ids);
      else if (!piece.text.empty())
        file->model.words->encode(preTokenizer.isByteLevel ? toByteLevel(piece.text) : piece.text, ids);
  }

  std::shared_ptr<const HfFile> file;
  bool addsFrame;
  std::vector<std::unique_ptr<NormalizerStep>> normalizer;
  PreTokenizer preTokenizer;
  HfDecoder decoder;
  AddedTokenFinder rawTokens, normalizedTokens;
  ByteLevelEncoder bytes;
};

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
      if (!id.is_number_integer() || !file.model.vocabulary.hasToken(id.get<int32_t>()))
        throw DataError(file.name, fmt::format("the template's token \"{}\" has no valid id", name));
      (isBefore ? file.prefix : file.suffix).push_back(id.get<int32_t>());
    }
  }
}

/// Returns the id of a pair of text and id, such as "cls": ["[CLS]", 101].
int32_t frameToken(const HfFile &file, const nlohmann::json &step, const char *name) {
  const nlohmann::json &pair = fieldOf(step, name);
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer() ||
      !file.model.vocabulary.hasToken(pair[1].get<int32_t>()))
    throw DataError(file.name, fmt::format("the post-processor's \"{}\" is no pair of a text and a valid id", name));
  return pair[1].get<int32_t>();
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
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    file.prefix.push_back(frameToken(file, step, "cls"));
    file.suffix.insert(file.suffix.begin(), frameToken(file, step, "sep"));
  } else if (type != "ByteLevel") { // ByteLevel only trims offsets, which are not computed
    throw DataError(file.name, fmt::format("post-processor \"{}\" is not read", type));
  }
}

void findEndOfDocument(HfFile &file, const std::string &wanted) {
  if (!wanted.empty()) {
    file.eodId = file.model.vocabulary.idOf(wanted);
    if (file.eodId < 0)
      throw DataError(file.name, fmt::format("end token \"{}\" is not in the vocabulary", wanted));
    return;
  }
  for (const char *usual : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"})
    if (file.eodId < 0)
      file.eodId = file.model.vocabulary.idOf(usual);
}

} // namespace

std::unique_ptr<Tokenizer> makeHfTokenizer(std::shared_ptr<const HfFile> file, bool addsFrame) {
  return std::make_unique<HfTokenizer>(std::move(file), addsFrame);
}

std::unique_ptr<Tokenizer> openHfTokenizer(const TokenizerOptions &options) {
  if (options.modelFile.empty())
    throw DataError("tokenizer hf", "needs --tokenizer-model");
  auto file = std::make_shared<HfFile>();
  bool isFolder = std::filesystem::is_directory(options.modelFile); // a folder of transformers, as in Megatron
  file->name = isFolder ? (std::filesystem::path(options.modelFile) / "tokenizer.json").string() : options.modelFile;
  file->json = parseJsonFile(file->name, readWholeFile(file->name, largestModelFile));
  if (!file->json.is_object() || !fieldOf(file->json, "model").is_object())
    throw DataError(file->name, "no \"model\" field; this is no tokenizer.json");
  readModel(file->name, file->json["model"], file->model);
  file->json.erase("model");
  int64_t limit = 2 * file->model.vocabulary.size() + 4096;
  for (const AddedToken &token : readAddedTokens(file->name, fieldOf(file->json, "added_tokens"))) {
    if (token.id >= limit)
      throw DataError(file->name,
                      fmt::format("added token \"{}\" has id {}, want 0 to {}", token.text, token.id, limit - 1));
    file->model.vocabulary.setToken(token.id, token.text);
    if (token.isSpecial)
      file->marks.insert(token.id);
  }
  readPostProcessor(*file, fieldOf(file->json, "post_processor"), 0);
  findEndOfDocument(*file, options.eodText);
  return makeHfTokenizer(std::move(file), options.specialTokens);
}

} // namespace espalier::rt
