// A BPE model works on bytes, or on characters with a fallback to byte tokens (as in SentencePiece). Unigram and
// WordPiece always work on characters. The words of a byte-level pre-tokenizer then consist of byte-level characters.
#include "runtime/tokenizer/hf_model.h"

#include "runtime/tokenizer/hf_json.h"
#include "runtime/tokenizer/unigram.h"
#include "runtime/utf8.h"

namespace espalier::rt {

namespace {

/// The tokens <0x00> to <0xFF> of a vocabulary.
class ByteTokens {
public:
  ByteTokens(const BpeVocabulary &vocabulary, bool areUsed) : areUsed(areUsed) {
    for (int byte = 0; byte < 256; ++byte)
      tokens[byte] = vocabulary.idOf(fmt::format("<0x{:02X}>", byte));
  }
  /// Appends the tokens of the bytes of a text. Returns false, and appends none, if a byte has no token.
  bool append(std::string_view text, std::vector<int32_t> &ids) const {
    auto idOf = [&](char c) { return tokens[static_cast<uint8_t>(c)]; };
    if (!areUsed || std::ranges::any_of(text, [&](char c) { return idOf(c) < 0; }))
      return false;
    std::ranges::transform(text, std::back_inserter(ids), idOf);
    return true;
  }

private:
  bool areUsed;
  std::array<int32_t, 256> tokens; // -1 where absent
};

class BpeModel final : public WordModel {
public:
  BpeModel(const HfModel &model, int32_t unknownId, bool fallsBackToBytes, bool fusesUnknown)
      : model(model), bytes(model.vocabulary, fallsBackToBytes), unknownId(unknownId), fusesUnknown(fusesUnknown) {}

  void encode(const std::string &word, std::vector<int32_t> &ids) const override {
    if (model.takesWholeWords)
      if (int32_t id = model.vocabulary.idOf(word); id >= 0)
        return ids.push_back(id);
    std::vector<int32_t> symbols;
    bool isAfterUnknown = false;
    for (size_t at = 0; at < word.size();) {
      std::string character = word.substr(at, decodeUtf8(word, at).bytes);
      int32_t id = model.vocabulary.idOf(character);
      bool isUnknown = id < 0 && !bytes.append(character, symbols);
      if (id >= 0)
        symbols.push_back(id);
      else if (isUnknown && unknownId >= 0 && !(fusesUnknown && isAfterUnknown))
        symbols.push_back(unknownId);
      isAfterUnknown = isUnknown;
      at += character.size();
    }
    model.vocabulary.merges().apply(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

private:
  const HfModel &model;
  ByteTokens bytes;
  int32_t unknownId;
  bool fusesUnknown;
};

/// Neighbouring unknown characters become one unknown token, or byte tokens.
class UnigramModel final : public WordModel {
public:
  UnigramModel(std::string file, const BpeVocabulary &vocabulary, Unigram unigram, int32_t unknownId,
               bool fallsBackToBytes)
      : file(std::move(file)), vocabulary(vocabulary), unigram(std::move(unigram)), bytes(vocabulary, fallsBackToBytes),
        unknownId(unknownId) {}

  void encode(const std::string &word, std::vector<int32_t> &ids) const override {
    std::vector<Unigram::Piece> pieces = unigram.encode(word);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (!isUnknown(pieces[i])) {
        ids.push_back(pieces[i].id);
        continue;
      }
      size_t begin = static_cast<size_t>(pieces[i].text.data() - word.data()), size = pieces[i].text.size();
      while (i + 1 < pieces.size() && isUnknown(pieces[i + 1]))
        size += pieces[++i].text.size();
      std::string unknown = word.substr(begin, size);
      if (int32_t id = vocabulary.idOf(unknown); id >= 0)
        ids.push_back(id);
      else if (!bytes.append(unknown, ids))
        appendUnknown(unknown, ids);
    }
  }

private:
  bool isUnknown(const Unigram::Piece &piece) const { return piece.id < 0 || piece.id == unknownId; }
  void appendUnknown(const std::string &text, std::vector<int32_t> &ids) const {
    if (unknownId < 0)
      throw DataError(file, fmt::format("the model has no unk_id and no token for \"{}\"", text.substr(0, 60)));
    ids.push_back(unknownId);
  }
  std::string file;
  const BpeVocabulary &vocabulary;
  Unigram unigram;
  ByteTokens bytes;
  int32_t unknownId;
};

/// Takes the longest token that the rest of a word starts with. All but the first have a prefix such as "##". A word
/// that cannot be written this way is one unknown token.
class WordPieceModel final : public WordModel {
public:
  WordPieceModel(const std::string &file, const BpeVocabulary &vocabulary, const std::string &prefix, int32_t unknownId,
                 int64_t mostCharacters)
      : unknownId(unknownId), mostCharacters(mostCharacters) {
    std::vector<PrefixTree::Entry> whole, continued;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      std::string_view text = vocabulary.hasToken(id) ? std::string_view(vocabulary.textOf(id)) : "";
      whole.push_back({text, id});
      if (text.starts_with(prefix))
        continued.push_back({text.substr(prefix.size()), id});
    }
    starts = PrefixTree(file, std::move(whole));
    continuations = PrefixTree(file, std::move(continued));
  }

  void encode(const std::string &word, std::vector<int32_t> &ids) const override {
    int64_t characters = 0;
    for (size_t at = 0; at < word.size(); ++characters)
      at += decodeUtf8(word, at).bytes;
    size_t before = ids.size(), at = 0;
    while (at < word.size() && characters <= mostCharacters) {
      auto [bytes, id] = (at == 0 ? starts : continuations).longest(std::string_view(word).substr(at));
      if (bytes == 0)
        break;
      ids.push_back(id);
      at += bytes;
    }
    if (at == word.size())
      return;
    ids.resize(before);
    ids.push_back(unknownId);
  }

private:
  PrefixTree starts, continuations;
  int32_t unknownId;
  int64_t mostCharacters;
};

void readMerges(const std::string &file, const nlohmann::json &merges, BpeVocabulary &vocabulary) {
  if (!merges.is_array())
    throw DataError(file, "the model has no list of merges");
  for (const nlohmann::json &merge : merges) {
    // Older files write "left right", newer ones ["left", "right"].
    if (merge.is_string()) {
      std::string text = merge.get<std::string>();
      size_t space = text.find(' ');
      if (space == std::string::npos)
        throw DataError(file, fmt::format("merge \"{}\" has no space", text.substr(0, 60)));
      vocabulary.addMerge(file, 0, text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      vocabulary.addMerge(file, 0, merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      throw DataError(file, "a merge is neither a string nor a pair of strings");
    }
  }
}

/// Returns the id of the model's unknown token, or -1 without one.
int32_t readUnknown(const std::string &file, const nlohmann::json &field, const BpeVocabulary &vocabulary,
                    const std::string &fallback) {
  std::string unknown = fieldOr<std::string>(file, field, "unk_token", fallback);
  int32_t id = unknown.empty() ? -1 : vocabulary.idOf(unknown);
  if (!unknown.empty() && id < 0)
    throw DataError(file, fmt::format("unk_token \"{}\" is not in the vocabulary", unknown));
  return id;
}

void readBpe(const std::string &file, const nlohmann::json &field, HfModel &model) {
  for (const char *affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!fieldOr<std::string>(file, field, affix, "").empty())
      throw DataError(file, fmt::format("a model with {} is not read", affix));
  auto dropout = field.find("dropout");
  if (dropout != field.end() && !dropout->is_null() && *dropout != 0.0)
    throw DataError(file, "a model with dropout gives other ids each time; set it to null");
  model.vocabulary = BpeVocabulary::fromJson(file, fieldOf(field, "vocab"));
  readMerges(file, fieldOf(field, "merges"), model.vocabulary);
  model.isBpe = true;
  model.takesWholeWords = fieldOr(file, field, "ignore_merges", false);
  model.words =
      std::make_unique<BpeModel>(model, readUnknown(file, field, model.vocabulary, ""),
                                 fieldOr(file, field, "byte_fallback", false), fieldOr(file, field, "fuse_unk", false));
}

void readUnigram(const std::string &file, const nlohmann::json &field, HfModel &model) {
  const nlohmann::json &vocab = fieldOf(field, "vocab");
  if (!vocab.is_array() || vocab.empty())
    throw DataError(file, "the vocabulary is no list of token texts and scores");
  std::vector<PrefixTree::Entry> pieces;
  std::vector<double> scores;
  for (const nlohmann::json &entry : vocab) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      throw DataError(file, fmt::format("token {} is no pair of a text and a score", scores.size()));
    auto id = static_cast<int32_t>(scores.size());
    model.vocabulary.setToken(id, entry[0].get<std::string>());
    pieces.push_back({entry[0].get_ref<const std::string &>(), id});
    scores.push_back(entry[1].get<double>());
  }
  auto unknown = fieldOr<int64_t>(file, field, "unk_id", -1);
  if (unknown < -1 || unknown >= model.vocabulary.size())
    throw DataError(file, fmt::format("unk_id is {}, want 0 to {}", unknown, model.vocabulary.size() - 1));
  double unknownScore = std::ranges::min(scores) - Unigram::unknownPenalty;
  Unigram unigram(file, std::move(pieces), std::move(scores), unknownScore, Unigram::Sums::doubles);
  model.words =
      std::make_unique<UnigramModel>(file, model.vocabulary, std::move(unigram), static_cast<int32_t>(unknown),
                                     fieldOr(file, field, "byte_fallback", false));
}

void readWordPiece(const std::string &file, const nlohmann::json &field, HfModel &model) {
  model.vocabulary = BpeVocabulary::fromJson(file, fieldOf(field, "vocab"));
  int32_t unknown = readUnknown(file, field, model.vocabulary, "[UNK]");
  if (unknown < 0)
    throw DataError(file, "a WordPiece model without unk_token is not read");
  model.words = std::make_unique<WordPieceModel>(
      file, model.vocabulary, fieldOr<std::string>(file, field, "continuing_subword_prefix", "##"), unknown,
      fieldOr<int64_t>(file, field, "max_input_chars_per_word", 100));
}

} // namespace

void readModel(const std::string &file, const nlohmann::json &field, HfModel &model) {
  std::string type = fieldOr<std::string>(file, field, "type", "BPE");
  if (type == "BPE")
    readBpe(file, field, model);
  else if (type == "Unigram")
    readUnigram(file, field, model);
  else if (type == "WordPiece")
    readWordPiece(file, field, model);
  else
    throw DataError(file, fmt::format("model of type {}, only BPE, Unigram and WordPiece are read", type));
}

} // namespace espalier::rt
