// Normalizers, equal to the steps of the same names in HF's tokenizers.
#include "runtime/files/base64.h"
#include "runtime/tokenizer/char_maps.h"
#include "runtime/tokenizer/hf_finder.h"
#include "runtime/tokenizer/hf_steps.h"
#include "runtime/tokenizer/sentencepiece_normalizer.h"
#include "runtime/tokenizer/unicode_normal.h"

#include <optional>

namespace espalier::rt {

namespace {

class PrependStep final : public NormalizerStep {
public:
  explicit PrependStep(std::string text) : prefix(std::move(text)) {}
  void apply(NormalText &normal) const override {
    if (!normal.text.empty())
      normal.text.insert(0, prefix);
  }

private:
  std::string prefix;
};

class ReplaceStep final : public NormalizerStep {
public:
  ReplaceStep(const std::string &file, const HfPattern &pattern, std::string content)
      : file(file), finder(file, pattern), content(std::move(content)) {}
  void apply(NormalText &normal) const override {
    const std::string &text = normal.text;
    std::string out;
    for (const Stretch &stretch : finder.cover(text)) {
      out += stretch.isMatch ? content : text.substr(stretch.begin, stretch.end - stretch.begin);
      if (out.size() > largestNormalized(text.size()))
        throw DataError(file, fmt::format("a Replace makes {} bytes out of {}", out.size(), text.size()));
      normal.keepsStart &= stretch.begin > 0 || !stretch.isMatch || !content.empty();
    }
    normal.text = std::move(out);
  }

private:
  std::string file;
  Finder finder;
  std::string content;
};

class NormalFormStep final : public NormalizerStep {
public:
  explicit NormalFormStep(NormalForm form) : form(form) {}
  void apply(NormalText &normal) const override { normal.text = toNormalForm(normal.text, form); }

private:
  NormalForm form;
};

class LowercaseStep final : public NormalizerStep {
public:
  void apply(NormalText &normal) const override { normal.text = toLowerCase(normal.text); }
};

/// Removes white space at the ends of a text.
class StripStep final : public NormalizerStep {
public:
  StripStep(bool left, bool right) : left(left), right(right) {}
  void apply(NormalText &normal) const override {
    const std::string &text = normal.text;
    size_t begin = 0, end = text.size();
    while (left && begin < end && isSpace(text, begin))
      begin += decodeUtf8(text, begin).bytes;
    while (right && begin < end && isSpace(text, charBefore(text, end)))
      end = charBefore(text, end);
    normal = {text.substr(begin, end - begin), normal.keepsStart && begin == 0};
  }

private:
  static bool isSpace(const std::string &text, size_t at) {
    return unicodeClasses().at(text, at).kind == CharClass::space;
  }
  bool left, right;
};

class CharMapStep final : public NormalizerStep {
public:
  explicit CharMapStep(CharMap *map) : map(map) {}
  void apply(NormalText &normal) const override {
    const std::string &text = normal.text;
    std::string out;
    for (size_t at = 0; at < text.size();) {
      DecodedChar c = decodeUtf8(text, at);
      if (c.isValid)
        map(c.codePoint, out);
      else
        out += text[at];
      normal.keepsStart &= at > 0 || !out.empty();
      at += c.bytes;
    }
    normal.text = std::move(out);
  }

private:
  CharMap *map;
};

/// Replaces sequences by SentencePiece's map. Unlike SentencePiece, the published step looks up a short grapheme
/// cluster first, then each character, and takes the shortest match for the whole of either.
class PrecompiledStep final : public NormalizerStep {
public:
  PrecompiledStep(const std::string &file, std::string bytes) : map(file, std::move(bytes)) {}
  void apply(NormalText &normal) const override {
    constexpr size_t longestCluster = 5;
    std::string_view text = normal.text;
    std::string out;
    for (size_t at = 0; at < text.size();) {
      size_t end = graphemeEnd(text, at);
      if (end - at <= longestCluster && append(text.substr(at, end - at), out)) {
        at = end;
        continue;
      }
      while (at < end) {
        std::string_view character = text.substr(at, decodeUtf8(text, at).bytes);
        if (!append(character, out))
          out += character;
        at += character.size();
      }
    }
    normal.text = std::move(out);
  }

private:
  bool append(std::string_view part, std::string &out) const {
    CharsMap::Match match = map.shortest(part);
    out += match.made;
    return match.taken > 0;
  }
  CharsMap map;
};

/// Returns a step without settings, or null for other names.
std::unique_ptr<NormalizerStep> namedNormalizer(const std::string &type) {
  constexpr std::pair<const char *, NormalForm> forms[] = {
      {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
  for (const auto &[name, form] : forms)
    if (type == name)
      return std::make_unique<NormalFormStep>(form);
  if (type == "Lowercase")
    return std::make_unique<LowercaseStep>();
  if (type == "Nmt")
    return std::make_unique<CharMapStep>(normalizeAsNmt);
  if (type == "StripAccents")
    return std::make_unique<CharMapStep>(dropMarks);
  return nullptr;
}

void addBertNormalizer(const std::string &file, const nlohmann::json &step,
                       std::vector<std::unique_ptr<NormalizerStep>> &steps) {
  bool lowers = fieldOr(file, step, "lowercase", true);
  if (fieldOr(file, step, "clean_text", true))
    steps.push_back(std::make_unique<CharMapStep>(cleanForBert));
  if (fieldOr(file, step, "handle_chinese_chars", true))
    steps.push_back(std::make_unique<CharMapStep>(spaceIdeographs));
  if (fieldOr(file, step, "strip_accents", lowers)) {
    steps.push_back(std::make_unique<NormalFormStep>(NormalForm::nfd));
    steps.push_back(std::make_unique<CharMapStep>(dropAccents));
  }
  if (lowers)
    steps.push_back(std::make_unique<LowercaseStep>());
}

/// Reads SentencePiece's map; a missing one changes nothing.
void addPrecompiled(const std::string &file, const nlohmann::json &step,
                    std::vector<std::unique_ptr<NormalizerStep>> &steps) {
  std::optional<std::string> bytes = fromBase64(fieldOr<std::string>(file, step, "precompiled_charsmap", ""));
  if (!bytes)
    throw DataError(file, "precompiled_charsmap is not base64");
  if (!bytes->empty())
    steps.push_back(std::make_unique<PrecompiledStep>(file, *bytes));
}

void addNormalizer(const std::string &file, const nlohmann::json &step, int depth,
                   std::vector<std::unique_ptr<NormalizerStep>> &steps) {
  std::string type = requiredField<std::string>(file, step, "type");
  if (type == "Sequence" && depth < deepestSequence) {
    for (const nlohmann::json &one : stepsOf(file, step, "normalizers"))
      addNormalizer(file, one, depth + 1, steps);
  } else if (type == "Prepend") {
    steps.push_back(std::make_unique<PrependStep>(requiredField<std::string>(file, step, "prepend")));
  } else if (type == "Replace") {
    steps.push_back(std::make_unique<ReplaceStep>(file, readPattern(file, step),
                                                  requiredField<std::string>(file, step, "content")));
  } else if (type == "Strip") {
    steps.push_back(
        std::make_unique<StripStep>(fieldOr(file, step, "strip_left", true), fieldOr(file, step, "strip_right", true)));
  } else if (type == "BertNormalizer") {
    addBertNormalizer(file, step, steps);
  } else if (type == "Precompiled") {
    addPrecompiled(file, step, steps);
  } else if (auto named = namedNormalizer(type)) {
    steps.push_back(std::move(named));
  } else {
    throw DataError(file,
                    fmt::format("normalizer \"{}\" is not read, only NFC, NFD, NFKC, NFKD, Nmt, Lowercase, Strip, "
                                "StripAccents, Prepend, Replace, Precompiled, BertNormalizer and Sequence are",
                                type));
  }
}

} // namespace

std::vector<std::unique_ptr<NormalizerStep>> readNormalizer(const std::string &file, const nlohmann::json &field) {
  std::vector<std::unique_ptr<NormalizerStep>> steps;
  if (!field.is_null())
    addNormalizer(file, field, 0, steps);
  return steps;
}

} // namespace espalier::rt
