// SentencePiece models of the types BPE and unigram, read through the public schema, because the SentencePiece library
// and protobuf cannot share a process. In a BPE model, the pair with the highest score merges first; among equal
// scores, the leftmost. Characters without a piece become bytes.
#include "messages/data_error.h"
#include "runtime/files/mapped_file.h"
#include "runtime/tokenizer/hf_added_tokens.h"
#include "runtime/tokenizer/sentencepiece_normalizer.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/unigram.h"
#include "runtime/utf8.h"

#include "sentencepiece_model.pb.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <queue>
#include <unordered_map>

namespace espalier::rt {

namespace {

using sentencepiece::ModelProto;
using Piece = ModelProto::SentencePiece;

constexpr uint64_t largestModelFile = uint64_t{1} << 30;
constexpr std::string_view escapedSpace = "\xE2\x96\x81";

/// The tables for encoding, shared between threads.
struct Model {
  std::string file;
  ModelProto proto;
  std::unordered_map<std::string_view, int32_t> mergeable, reserved; // views into proto
  std::vector<int32_t> byteIds;                                      // empty without byte fallback
  std::unique_ptr<AddedTokenFinder> controls;                        // such as <s> and </s>
  std::unique_ptr<SentencePieceNormalizer> normalizer;
  std::unique_ptr<Unigram> unigram; // null for a BPE model

  Piece::Type type(int32_t id) const { return proto.pieces(id).type(); }
  int32_t idOf(std::string_view text) const {
    if (auto found = reserved.find(text); found != reserved.end())
      return found->second;
    auto found = mergeable.find(text);
    return found == mergeable.end() ? proto.trainer_spec().unk_id() : found->second;
  }
};

/// One text during merging. Symbols are linked slices of the text.
class Merging {
public:
  Merging(const Model &model, std::string_view text) : model(model) {
    for (size_t at = 0; at < text.size();) {
      size_t frozen = model.normalizer->userDefined().longest(text.substr(at)).first;
      size_t length = frozen ? frozen : decodeUtf8(text, at).bytes;
      auto here = static_cast<int64_t>(symbols.size());
      symbols.push_back({text.substr(at, length), here - 1, here + 1, frozen > 0});
      at += length;
    }
    for (size_t i = 1; i < symbols.size(); ++i)
      consider(static_cast<int64_t>(i) - 1, static_cast<int64_t>(i));
  }

  /// Calls emit(text, id) for each piece, in order.
  template <typename Emit> void run(Emit emit) {
    while (!candidates.empty()) {
      Candidate top = candidates.top();
      candidates.pop();
      Symbol &left = symbols[top.left], &right = symbols[top.right];
      if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != top.bytes)
        continue; // one side has merged since the candidate was added
      left.text = {left.text.data(), top.bytes};
      right.text = {};
      left.after = right.after;
      if (left.after < count())
        symbols[left.after].before = top.left;
      consider(left.before, top.left);
      consider(top.left, left.after);
    }
    for (int64_t i = 0; i < count(); i = symbols[i].after)
      emitPiece(symbols[i].text, emit);
  }

private:
  struct Symbol {
    std::string_view text;
    int64_t before, after;
    bool isFrozen;
  };
  struct Candidate {
    float score;
    int64_t left, right;
    size_t bytes;
    bool operator<(const Candidate &other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  int64_t count() const { return static_cast<int64_t>(symbols.size()); }

  void consider(int64_t left, int64_t right) {
    if (left < 0 || right >= count() || symbols[left].isFrozen || symbols[right].isFrozen)
      return;
    std::string_view a = symbols[left].text, b = symbols[right].text;
    std::string_view both(a.data(), a.size() + b.size());
    auto found = model.mergeable.find(both);
    if (found == model.mergeable.end())
      return;
    candidates.push({model.proto.pieces(found->second).score(), left, right, both.size()});
    if (model.type(found->second) == Piece::UNUSED)
      halves[both] = {a, b};
  }

  /// Emits a piece. Unused pieces only serve merging, so the output splits them again.
  template <typename Emit> void emitPiece(std::string_view whole, Emit emit) {
    std::vector<std::string_view> pending = {whole};
    while (!pending.empty()) {
      std::string_view text = pending.back();
      pending.pop_back();
      int32_t id = model.idOf(text);
      auto split = halves.find(text);
      if (model.type(id) != Piece::UNUSED || split == halves.end()) {
        emit(text, id);
        continue;
      }
      pending.push_back(split->second.second);
      pending.push_back(split->second.first);
    }
  }

  const Model &model;
  std::vector<Symbol> symbols;
  std::priority_queue<Candidate> candidates;
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves;
};

class SentencePieceTokenizer final : public Tokenizer {
public:
  SentencePieceTokenizer(std::shared_ptr<const Model> tables, bool addsBos, bool recognizesSpecial)
      : model(std::move(tables)), addsBos(addsBos), recognizesSpecial(recognizesSpecial) {}

  void encode(std::string_view text, std::vector<int32_t> &ids) override {
    if (addsBos)
      ids.push_back(model->proto.trainer_spec().bos_id());
    if (!recognizesSpecial)
      return encodePlain(text, ids);
    for (const AddedPiece &piece : model->controls->cut(text))
      if (piece.id >= 0)
        ids.push_back(piece.id);
      else
        encodePlain(text.substr(piece.begin, piece.end - piece.begin), ids);
  }
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocabSize() const override { return model->proto.pieces_size(); }
  int32_t eodToken() const override {
    int32_t id = model->proto.trainer_spec().eos_id();
    return id < model->proto.pieces_size() ? id : -1;
  }
  std::string markOf(int32_t id) const override {
    bool isMark = id >= 0 && id < model->proto.pieces_size() && model->type(id) == Piece::CONTROL;
    return isMark ? model->proto.pieces(id).piece() : "";
  }
  std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<SentencePieceTokenizer>(model, addsBos, recognizesSpecial);
  }

private:
  /// Encodes a text without special tokens.
  void encodePlain(std::string_view text, std::vector<int32_t> &ids) const {
    std::string normalized = model->normalizer->normalize(text);
    bool isAfterUnknown = false;
    auto emit = [&](std::string_view piece, int32_t id) {
      bool isUnknown = model->type(id) == Piece::UNKNOWN;
      if (isUnknown && !model->byteIds.empty()) {
        for (char c : piece)
          ids.push_back(model->byteIds[static_cast<uint8_t>(c)]);
      } else if (!isUnknown || !isAfterUnknown) {
        ids.push_back(id); // a run of unknown characters is one unknown piece
      }
      isAfterUnknown = isUnknown;
    };
    if (!model->unigram)
      return Merging(*model, normalized).run(emit);
    for (const Unigram::Piece &piece : model->unigram->encode(normalized))
      emit(piece.text, piece.id < 0 ? model->proto.trainer_spec().unk_id() : piece.id);
  }

  std::shared_ptr<const Model> model;
  bool addsBos, recognizesSpecial;
};

std::string spacesOf(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    bool isSpace = text.starts_with(escapedSpace);
    out += isSpace ? ' ' : text[0];
    text.remove_prefix(isSpace ? escapedSpace.size() : 1);
  }
  return out;
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  const sentencepiece::NormalizerSpec &spec = model->proto.normalizer_spec();
  // The first space is the dummy prefix. A normalizer that removes extra spaces leaves no space before the first text.
  bool dropsSpace = spec.add_dummy_prefix() || spec.remove_extra_whitespaces();
  std::string out;
  for (int32_t id : ids) {
    if (id < 0 || id >= model->proto.pieces_size())
      throw DataError(model->file, fmt::format("id {}, want 0 to {}", id, model->proto.pieces_size() - 1));
    std::string_view text = model->proto.pieces(id).piece();
    Piece::Type type = model->type(id);
    if (type == Piece::CONTROL)
      continue;
    if (type == Piece::UNKNOWN) {
      out += model->proto.trainer_spec().unk_surface();
    } else if (type == Piece::BYTE) {
      out += static_cast<char>(std::stoi(std::string(text.substr(3, 2)), nullptr, 16));
    } else {
      bool isPrefix = dropsSpace && text.starts_with(escapedSpace);
      out += spacesOf(isPrefix ? text.substr(escapedSpace.size()) : text);
      dropsSpace = dropsSpace && out.empty() && (spec.remove_extra_whitespaces() || !isPrefix);
      continue;
    }
    dropsSpace = false;
  }
  return out;
}

void checkSpecialIds(const Model &model) {
  int32_t unknown = model.proto.trainer_spec().unk_id();
  if (unknown < 0 || unknown >= model.proto.pieces_size() || model.type(unknown) != Piece::UNKNOWN)
    throw DataError(model.file, fmt::format("unk_id {} is no unknown piece", unknown));
  auto type = model.proto.trainer_spec().model_type();
  if (type != sentencepiece::TrainerSpec::BPE && type != sentencepiece::TrainerSpec::UNIGRAM)
    throw DataError(model.file, fmt::format("model of type {}, only BPE and UNIGRAM are read; train one of these types",
                                            sentencepiece::TrainerSpec::ModelType_Name(type)));
}

/// Returns the model's pieces with SentencePiece's scores: a user-defined piece beats every other path.
std::unique_ptr<Unigram> unigramOf(const Model &model) {
  float least = std::numeric_limits<float>::max(), most = std::numeric_limits<float>::min();
  for (const Piece &piece : model.proto.pieces())
    if (piece.type() == Piece::NORMAL) {
      least = std::min(least, piece.score());
      most = std::max(most, piece.score());
    }
  std::vector<PrefixTree::Entry> pieces;
  std::vector<double> scores;
  for (const Piece &piece : model.proto.pieces()) {
    if (piece.type() == Piece::NORMAL || piece.type() == Piece::USER_DEFINED)
      pieces.push_back({piece.piece(), static_cast<int32_t>(scores.size())});
    auto kept = static_cast<float>(static_cast<float>(piece.piece().size()) * most - 0.1);
    scores.push_back(piece.type() == Piece::USER_DEFINED ? kept : piece.score());
  }
  return std::make_unique<Unigram>(model.file, std::move(pieces), std::move(scores), least - Unigram::unknownPenalty,
                                   Unigram::Sums::floats);
}

/// Fills the tables. Throws DataError if the model falls back to bytes and a byte has no piece.
void indexPieces(Model &model) {
  std::vector<int32_t> bytes(256, -1);
  for (int32_t id = 0; id < model.proto.pieces_size(); ++id) {
    const std::string &text = model.proto.pieces(id).piece();
    if (text.empty())
      throw DataError(model.file, fmt::format("piece {} is empty", id));
    if (!std::isfinite(model.proto.pieces(id).score()))
      throw DataError(model.file, fmt::format("piece {} has no finite score", id));
    Piece::Type type = model.type(id);
    bool isMergeable = type == Piece::NORMAL || type == Piece::USER_DEFINED || type == Piece::UNUSED;
    if (!(isMergeable ? model.mergeable : model.reserved).try_emplace(text, id).second)
      throw DataError(model.file, fmt::format("piece {} comes twice: \"{}\"", id, text));
    if (type != Piece::BYTE)
      continue;
    for (int byte = 0; byte < 256; ++byte)
      if (text == fmt::format("<0x{:02X}>", byte))
        bytes[byte] = id;
    if (std::ranges::find(bytes, id) == bytes.end())
      throw DataError(model.file, fmt::format("byte piece {} is \"{}\", want <0x00> to <0xFF>", id, text));
  }
  if (!model.proto.trainer_spec().byte_fallback())
    return;
  for (int byte = 0; byte < 256; ++byte)
    if (bytes[byte] < 0)
      throw DataError(model.file, fmt::format("falls back to bytes but lacks <0x{:02X}>", byte));
  model.byteIds = std::move(bytes);
}

} // namespace

std::unique_ptr<Tokenizer> openSentencePieceTokenizer(const TokenizerOptions &options) {
  if (options.modelFile.empty())
    throw DataError("tokenizer sentencepiece", "needs --tokenizer-model");
  auto model = std::make_shared<Model>();
  model->file = options.modelFile;
  std::string bytes = readWholeFile(model->file, largestModelFile);
  if (!model->proto.ParseFromString(bytes) || model->proto.pieces_size() == 0)
    throw DataError(model->file, "not a SentencePiece model");
  checkSpecialIds(*model);
  indexPieces(*model);
  int32_t bos = model->proto.trainer_spec().bos_id();
  if (options.addBos && (bos < 0 || bos >= model->proto.pieces_size()))
    throw DataError(model->file, "has no token that begins a document");
  std::vector<PrefixTree::Entry> userDefined;
  std::vector<AddedToken> controls;
  for (int32_t id = 0; id < model->proto.pieces_size(); ++id)
    if (const std::string &piece = model->proto.pieces(id).piece(); model->type(id) == Piece::USER_DEFINED)
      userDefined.push_back({piece, id});
    else if (model->type(id) == Piece::CONTROL)
      controls.push_back({.text = piece, .id = id, .isSpecial = true});
  model->controls = std::make_unique<AddedTokenFinder>(std::move(controls));
  const sentencepiece::NormalizerSpec &spec = model->proto.normalizer_spec();
  SentencePieceNormalizer::Rules rules{spec.add_dummy_prefix(), spec.remove_extra_whitespaces(),
                                       spec.escape_whitespaces(),
                                       model->proto.trainer_spec().treat_whitespace_as_suffix()};
  model->normalizer = std::make_unique<SentencePieceNormalizer>(model->file, spec.precompiled_charsmap(), rules,
                                                                PrefixTree(model->file, std::move(userDefined)));
  if (model->proto.trainer_spec().model_type() == sentencepiece::TrainerSpec::UNIGRAM)
    model->unigram = unigramOf(*model);
  return std::make_unique<SentencePieceTokenizer>(std::move(model), options.addBos, options.specialTokens);
}

} // namespace espalier::rt
