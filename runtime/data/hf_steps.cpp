// Behaviour follows the published steps of the same names.
#include "runtime/data/hf_steps.h"

#include "runtime/data/gpt2_scanner.h"
#include "runtime/data/hf_json.h"
#include "runtime/data/regex.h"
#include "runtime/data/utf8.h"

#include <algorithm>

namespace espalier::rt {

namespace {

/// A stretch of a text, and whether the pattern matched it.
struct Stretch {
  size_t begin, end;
  bool isMatch;
};

/// Finds a literal or a regular expression.
class Finder {
public:
  Finder(const std::string &file, const HfPattern &pattern) : literal(pattern.text) {
    if (pattern.isRegex)
      regex = std::make_unique<Regex>(file, pattern.text);
    else if (literal.empty())
      throw DataError(file, "an empty pattern matches nothing");
  }
  /// Covers the text with matches and what lies between; empty matches are passed over.
  std::vector<Stretch> cover(std::string_view text) const {
    std::vector<Stretch> stretches;
    size_t done = 0, from = 0;
    while (from < text.size()) {
      auto [begin, end] = find(text, from);
      if (begin == std::string_view::npos)
        break;
      if (begin == end) {
        from = end < text.size() ? end + decodeUtf8(text, end).bytes : end;
        if (end >= text.size())
          break;
        continue;
      }
      if (begin > done)
        stretches.push_back({done, begin, false});
      stretches.push_back({begin, end, true});
      done = from = end;
    }
    if (done < text.size())
      stretches.push_back({done, text.size(), false});
    return stretches;
  }

private:
  std::pair<size_t, size_t> find(std::string_view text, size_t from) const {
    if (regex)
      return regex->find(text, from);
    size_t at = text.find(literal, from);
    return {at, at == std::string_view::npos ? at : at + literal.size()};
  }
  std::string literal;
  std::unique_ptr<Regex> regex;
};

class PrependStep final : public NormalizerStep {
public:
  explicit PrependStep(std::string text) : prefix(std::move(text)) {}
  void apply(std::string &text) const override {
    if (!text.empty())
      text.insert(0, prefix);
  }

private:
  std::string prefix;
};

class ReplaceStep final : public NormalizerStep {
public:
  ReplaceStep(const std::string &file, const HfPattern &pattern, std::string content)
      : file(file), finder(file, pattern), content(std::move(content)) {}
  void apply(std::string &text) const override {
    std::string out;
    for (const Stretch &stretch : finder.cover(text)) {
      out += stretch.isMatch ? content : text.substr(stretch.begin, stretch.end - stretch.begin);
      if (out.size() > largestNormalized(text.size()))
        throw DataError(file,
                        fmt::format("a Replace makes {} bytes out of {}", out.size(), text.size()));
    }
    text = std::move(out);
  }

private:
  std::string file;
  Finder finder;
  std::string content;
};

/// Groups covered stretches as the behaviour of a Split asks.
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

void cut(const TextPiece &piece, const std::vector<Stretch> &stretches,
         std::vector<TextPiece> &out) {
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

/// The published Digits step follows a later Unicode (17) than the published patterns (16).
bool isNewerDigit(std::string_view text, size_t at) {
  char32_t c = decodeUtf8(text, at).codePoint;
  return (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
}

class DigitsStep final : public PreTokenizerStep {
public:
  explicit DigitsStep(bool individual)
      : behavior(individual ? SplitBehavior::isolated : SplitBehavior::contiguous) {}
  void apply(TextPiece piece, std::vector<TextPiece> &out) const override {
    std::vector<Stretch> stretches;
    for (size_t at = 0; at < piece.text.size();) {
      UnicodeClasses::Found found = classes.at(piece.text, at);
      bool isDigit = found.kind == CharClass::number || isNewerDigit(piece.text, at);
      // Isolated keeps each digit apart but never cuts what lies between digits.
      if (!isDigit && !stretches.empty() && !stretches.back().isMatch)
        stretches.back().end = at + found.bytes;
      else
        stretches.push_back({at, at + found.bytes, isDigit});
      at += found.bytes;
    }
    cut(piece, group(std::move(stretches), behavior), out);
  }

private:
  UnicodeClasses classes;
  SplitBehavior behavior;
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
      : mark(mark), prefix(prefix), cuts(cuts), finder(file, {mark, false}),
        spaces(file, {" ", false}) {}
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

SplitBehavior readBehavior(const std::string &file, const nlohmann::json &step) {
  std::string name = requiredField<std::string>(file, step, "behavior");
  constexpr const char *names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                   "Contiguous"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (name == names[i])
      return static_cast<SplitBehavior>(i);
  throw DataError(file, fmt::format("unknown split behavior \"{}\"", name));
}

std::unique_ptr<PreTokenizerStep> readMetaspace(const std::string &file,
                                                const nlohmann::json &step) {
  std::string mark = fieldOr<std::string>(file, step, "replacement", "\xE2\x96\x81");
  bool adds = fieldOr(file, step, "add_prefix_space", true);
  std::string scheme =
      fieldOr<std::string>(file, step, "prepend_scheme", adds ? "always" : "never");
  using Prefix = MetaspaceStep::Prefix;
  if (scheme != "always" && scheme != "first" && scheme != "never")
    throw DataError(file, fmt::format("unknown prepend_scheme \"{}\"", scheme));
  Prefix prefix = scheme == "always"  ? Prefix::always
                  : scheme == "first" ? Prefix::first
                                      : Prefix::never;
  return std::make_unique<MetaspaceStep>(file, mark, prefix, fieldOr(file, step, "split", true));
}

const nlohmann::json &stepsOf(const std::string &file, const nlohmann::json &step,
                              const char *name) {
  if (!step.contains(name) || !step[name].is_array())
    throw DataError(file, fmt::format("a Sequence without \"{}\"", name));
  return step[name];
}

void addNormalizer(const std::string &file, const nlohmann::json &step, int depth,
                   std::vector<std::unique_ptr<NormalizerStep>> &steps) {
  std::string type = requiredField<std::string>(file, step, "type");
  if (type == "Sequence" && depth < deepestSequence) {
    for (const nlohmann::json &one : stepsOf(file, step, "normalizers"))
      addNormalizer(file, one, depth + 1, steps);
  } else if (type == "Prepend") {
    steps.push_back(
        std::make_unique<PrependStep>(requiredField<std::string>(file, step, "prepend")));
  } else if (type == "Replace") {
    steps.push_back(std::make_unique<ReplaceStep>(
        file, readPattern(file, step), requiredField<std::string>(file, step, "content")));
  } else {
    throw DataError(file, fmt::format("normalizer \"{}\" is not read, only Prepend, Replace and "
                                      "Sequence are",
                                      type));
  }
}

void addPreTokenizer(const std::string &file, const nlohmann::json &step, int depth,
                     PreTokenizer &out) {
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
    out.steps.push_back(std::make_unique<SplitStep>(file, readPattern(file, step),
                                                    readBehavior(file, step),
                                                    fieldOr(file, step, "invert", false)));
  } else if (type == "Digits") {
    out.steps.push_back(
        std::make_unique<DigitsStep>(fieldOr(file, step, "individual_digits", false)));
  } else if (type == "Metaspace") {
    out.steps.push_back(readMetaspace(file, step));
  } else {
    throw DataError(file, fmt::format("pre-tokenizer \"{}\" is not read, only ByteLevel, Split, "
                                      "Digits, Metaspace and Sequence are",
                                      type));
  }
}

} // namespace

std::vector<std::unique_ptr<NormalizerStep>> readNormalizer(const std::string &file,
                                                            const nlohmann::json &field) {
  std::vector<std::unique_ptr<NormalizerStep>> steps;
  if (!field.is_null())
    addNormalizer(file, field, 0, steps);
  return steps;
}

PreTokenizer readPreTokenizer(const std::string &file, const nlohmann::json &field) {
  PreTokenizer result;
  if (!field.is_null())
    addPreTokenizer(file, field, 0, result);
  return result;
}

} // namespace espalier::rt
