// Pre-tokenizers, equal to the steps of the same names in HF's tokenizers.
#include "runtime/tokenizer/gpt2_scanner.h"
#include "runtime/tokenizer/hf_finder.h"
#include "runtime/tokenizer/hf_steps.h"

#include <algorithm>

namespace espalier::rt {

namespace {

/// The behavior of a Split step: it groups matches with the text between them.
enum class SplitBehavior { removed, isolated, mergedWithPrevious, mergedWithNext, contiguous };

std::vector<Stretch> group(std::vector<Stretch> stretches, SplitBehavior behavior) {
  std::vector<Stretch> out;
  bool previousWasMatch = false;
  switch (behavior) {
  case SplitBehavior::isolated:
    return stretches;
  case SplitBehavior::removed:
    std::erase_if(stretches, [](const Stretch &s) { return s.isMatch; });
    return stretches;
  case SplitBehavior::contiguous:
    for (const Stretch &s : stretches)
      if (!out.empty() && out.back().isMatch == s.isMatch)
        out.back().end = s.end;
      else
        out.push_back(s);
    return out;
  case SplitBehavior::mergedWithPrevious:
    for (const Stretch &s : stretches) {
      if (s.isMatch && !previousWasMatch && !out.empty())
        out.back().end = s.end;
      else
        out.push_back(s);
      previousWasMatch = s.isMatch;
    }
    return out;
  case SplitBehavior::mergedWithNext:
    for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) {
      if (s->isMatch && !previousWasMatch && !out.empty())
        out.back().begin = s->begin;
      else
        out.push_back(*s);
      previousWasMatch = s->isMatch;
    }
    std::ranges::reverse(out);
    return out;
  }
  return out;
}

void cut(const TextPiece &piece, const std::vector<Stretch> &stretches, std::vector<TextPiece> &out) {
  for (const Stretch &s : stretches)
    out.push_back({piece.text.substr(s.begin, s.end - s.begin), piece.isFirst && s.begin == 0});
}

class SplitStep final : public PreTokenizerStep {
public:
  SplitStep(const std::string &file, const HfPattern &pattern, SplitBehavior behavior, bool inverts)
      : finder(file, pattern), behavior(behavior), inverts(inverts) {}
  void apply(TextPiece piece, std::vector<TextPiece> &out) const override {
    std::vector<Stretch> stretches = finder.cover(piece.text);
    for (Stretch &s : stretches)
      s.isMatch ^= inverts;
    cut(piece, group(std::move(stretches), behavior), out);
  }

private:
  Finder finder;
  SplitBehavior behavior;
  bool inverts;
};

/// Returns whether a character is a digit. The published Digits step uses Unicode 17, the published patterns Unicode
/// 16.
bool isDigit(char32_t c) {
  return unicodeClasses().of(c) == CharClass::number || (c >= 0x11DE0 && c <= 0x11DE9) ||
         (c >= 0x16FF4 && c <= 0x16FF6);
}

bool isSpace(char32_t c) { return unicodeClasses().of(c) == CharClass::space; }

bool isPunctuation(char32_t c) { return unicodeClasses().isPunctuation(c); }

/// Cuts at single characters of one kind.
class CharStep final : public PreTokenizerStep {
public:
  using Kind = bool (*)(char32_t);
  CharStep(Kind kind, SplitBehavior behavior) : kind(kind), behavior(behavior) {}
  void apply(TextPiece piece, std::vector<TextPiece> &out) const override {
    std::vector<Stretch> stretches;
    for (size_t at = 0; at < piece.text.size();) {
      DecodedChar c = decodeUtf8(piece.text, at);
      bool isMatch = c.isValid && kind(c.codePoint);
      // Each match is a range of its own. The text between matches is one range.
      if (!isMatch && !stretches.empty() && !stretches.back().isMatch)
        stretches.back().end = at + c.bytes;
      else
        stretches.push_back({at, at + c.bytes, isMatch});
      at += c.bytes;
    }
    cut(piece, group(std::move(stretches), behavior), out);
  }

private:
  Kind kind;
  SplitBehavior behavior;
};

/// Cuts a text into runs of \w and runs of other characters, and removes white space.
class WhitespaceStep final : public PreTokenizerStep {
public:
  void apply(TextPiece piece, std::vector<TextPiece> &out) const override {
    std::vector<Stretch> runs;
    bool joins = false; // the current run may continue
    for (size_t at = 0; at < piece.text.size();) {
      DecodedChar c = decodeUtf8(piece.text, at);
      bool isWord = c.isValid && unicodeClasses().isWord(c.codePoint);
      bool isGap = c.isValid && isSpace(c.codePoint);
      if (joins && !isGap && runs.back().isMatch == isWord)
        runs.back().end = at + c.bytes;
      else if (!isGap)
        runs.push_back({at, at + c.bytes, isWord});
      joins = !isGap;
      at += c.bytes;
    }
    cut(piece, runs, out);
  }
};

class ByteLevelStep final : public PreTokenizerStep {
public:
  ByteLevelStep(bool addsSpace, bool cuts) : addsSpace(addsSpace), cuts(cuts) {}
  void apply(TextPiece piece, std::vector<TextPiece> &out) const override {
    if (addsSpace && !piece.text.starts_with(' '))
      piece.text.insert(0, " ");
    if (!cuts) {
      out.push_back(std::move(piece));
      return;
    }
    for (size_t at = 0; at < piece.text.size();) {
      size_t end = scanner.pieceEnd(piece.text, at);
      out.push_back({piece.text.substr(at, end - at), piece.isFirst && at == 0});
      at = end;
    }
  }

private:
  bool addsSpace, cuts;
  Gpt2Scanner scanner;
};

class MetaspaceStep final : public PreTokenizerStep {
public:
  enum class Prefix { always, first, never };
  MetaspaceStep(const std::string &file, std::string mark, Prefix prefix, bool cuts)
      : mark(mark), prefix(prefix), cuts(cuts), finder(file, {mark, false}), spaces(file, {" ", false}) {}
  void apply(TextPiece piece, std::vector<TextPiece> &out) const override {
    std::string text;
    for (const Stretch &s : spaces.cover(piece.text))
      text += s.isMatch ? mark : piece.text.substr(s.begin, s.end - s.begin);
    bool prepends = prefix == Prefix::always || (prefix == Prefix::first && piece.isFirst);
    if (prepends && !text.starts_with(mark))
      text.insert(0, mark);
    piece.text = std::move(text);
    if (cuts)
      cut(piece, group(finder.cover(piece.text), SplitBehavior::mergedWithNext), out);
    else
      out.push_back(std::move(piece));
  }

private:
  std::string mark;
  Prefix prefix;
  bool cuts;
  Finder finder, spaces;
};

SplitBehavior readBehavior(const std::string &file, const nlohmann::json &step, const char *fallback = "") {
  std::string name = fieldOr<std::string>(file, step, "behavior", fallback);
  constexpr const char *names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (name == names[i])
      return static_cast<SplitBehavior>(i);
  throw DataError(file, fmt::format("unknown split behavior \"{}\"", name));
}

std::unique_ptr<PreTokenizerStep> readMetaspace(const std::string &file, const nlohmann::json &step) {
  std::string mark = fieldOr<std::string>(file, step, "replacement", "\xE2\x96\x81");
  bool adds = fieldOr(file, step, "add_prefix_space", true);
  std::string scheme = fieldOr<std::string>(file, step, "prepend_scheme", adds ? "always" : "never");
  using Prefix = MetaspaceStep::Prefix;
  if (scheme != "always" && scheme != "first" && scheme != "never")
    throw DataError(file, fmt::format("unknown prepend_scheme \"{}\"", scheme));
  Prefix prefix = scheme == "always" ? Prefix::always : scheme == "first" ? Prefix::first : Prefix::never;
  return std::make_unique<MetaspaceStep>(file, mark, prefix, fieldOr(file, step, "split", true));
}

void addPreTokenizer(const std::string &file, const nlohmann::json &step, int depth, PreTokenizer &out) {
  std::string type = requiredField<std::string>(file, step, "type");
  if (out.isByteLevel)
    throw DataError(file, fmt::format("pre-tokenizer \"{}\" after ByteLevel is not read", type));
  if (type == "Sequence" && depth < deepestSequence) {
    for (const nlohmann::json &one : stepsOf(file, step, "pretokenizers"))
      addPreTokenizer(file, one, depth + 1, out);
  } else if (type == "ByteLevel") {
    bool addsSpace = fieldOr(file, step, "add_prefix_space", true);
    bool cuts = fieldOr(file, step, "use_regex", true);
    out.isPlainGpt2 = out.steps.empty() && cuts && !addsSpace;
    out.steps.push_back(std::make_unique<ByteLevelStep>(addsSpace, cuts));
    out.isByteLevel = true;
  } else if (type == "Split") {
    out.steps.push_back(std::make_unique<SplitStep>(file, readPattern(file, step), readBehavior(file, step),
                                                    fieldOr(file, step, "invert", false)));
  } else if (type == "Digits") {
    bool isIndividual = fieldOr(file, step, "individual_digits", false);
    out.steps.push_back(
        std::make_unique<CharStep>(isDigit, isIndividual ? SplitBehavior::isolated : SplitBehavior::contiguous));
  } else if (type == "Punctuation") {
    out.steps.push_back(std::make_unique<CharStep>(isPunctuation, readBehavior(file, step, "Isolated")));
  } else if (type == "WhitespaceSplit") {
    out.steps.push_back(std::make_unique<CharStep>(isSpace, SplitBehavior::removed));
  } else if (type == "BertPreTokenizer") {
    out.steps.push_back(std::make_unique<CharStep>(isSpace, SplitBehavior::removed));
    out.steps.push_back(std::make_unique<CharStep>(isPunctuation, SplitBehavior::isolated));
  } else if (type == "CharDelimiterSplit") {
    HfPattern delimiter{requiredField<std::string>(file, step, "delimiter"), false};
    out.steps.push_back(std::make_unique<SplitStep>(file, delimiter, SplitBehavior::removed, /*inverts=*/false));
  } else if (type == "Whitespace") {
    out.steps.push_back(std::make_unique<WhitespaceStep>());
  } else if (type == "Metaspace") {
    out.steps.push_back(readMetaspace(file, step));
  } else {
    throw DataError(file, fmt::format("pre-tokenizer \"{}\" is not read, only ByteLevel, Split, Digits, Punctuation, "
                                      "BertPreTokenizer, CharDelimiterSplit, Whitespace, WhitespaceSplit, Metaspace "
                                      "and Sequence are",
                                      type));
  }
}

} // namespace

PreTokenizer readPreTokenizer(const std::string &file, const nlohmann::json &field) {
  PreTokenizer result;
  if (!field.is_null())
    addPreTokenizer(file, field, 0, result);
  return result;
}

} // namespace espalier::rt
