#include "runtime/generate/grammar.h"

#include "runtime/generate/text_stream.h"

#include <algorithm>
#include <limits>

namespace espalier::rt {

namespace {

bool isSpace(uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }
bool isDigit(uint8_t byte) { return byte >= '0' && byte <= '9'; }
bool isHex(uint8_t byte) { return isDigit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F'); }

} // namespace

bool JsonAutomaton::push(uint8_t byte) {
  switch (at) {
  case At::String:
  case At::Escape:
  case At::Hex:
    return pushText(byte);
  case At::Word:
    if (byte != static_cast<uint8_t>(*word))
      return false;
    return *++word == 0 ? go(At::Next) : true;
  case At::Minus:
  case At::Zero:
  case At::Integer:
  case At::Point:
  case At::Fraction:
  case At::Exponent:
  case At::ExponentSign:
  case At::ExponentDigits:
    return pushNumber(byte);
  case At::End:
    return false;
  default:
    break;
  }
  if (isSpace(byte))
    return ++spaces <= mostSpaces;
  spaces = 0;
  return pushValue(byte);
}

/// Reads a byte between texts, words and numbers that is no white space.
bool JsonAutomaton::pushValue(uint8_t byte) {
  bool isObject = levels > 0 && (objects >> (levels - 1) & 1);
  switch (at) {
  case At::Start:
    return byte == '{' && open(true);
  case At::FirstKey:
    if (byte == '}')
      return close(true);
    [[fallthrough]];
  case At::Key:
    isKey = true;
    return byte == '"' && go(At::String);
  case At::Colon:
    return byte == ':' && go(At::Value);
  case At::Next:
    return byte == ',' ? go(isObject ? At::Key : At::Value) : close(byte == '}') && (byte == '}' || byte == ']');
  case At::FirstValue:
    if (byte == ']')
      return close(false);
    [[fallthrough]];
  default:
    break;
  }
  if (byte == '{' || byte == '[')
    return open(byte == '{');
  isKey = false;
  if (byte == '"')
    return go(At::String);
  if (byte == '-' || isDigit(byte))
    return go(byte == '-' ? At::Minus : byte == '0' ? At::Zero : At::Integer);
  for (const char *one : {"true", "false", "null"})
    if (byte == static_cast<uint8_t>(*one)) {
      word = one + 1;
      return go(At::Word);
    }
  return false;
}

bool JsonAutomaton::open(bool isObject) {
  if (levels == mostLevels)
    return false;
  objects = (objects & ~(uint64_t{1} << levels)) | uint64_t{isObject} << levels;
  ++levels;
  return go(isObject ? At::FirstKey : At::FirstValue);
}

bool JsonAutomaton::close(bool isObject) {
  if (levels == 0 || (objects >> (levels - 1) & 1) != uint64_t{isObject})
    return false;
  return go(--levels == 0 ? At::End : At::Next);
}

/// Reads a byte within a string.
bool JsonAutomaton::pushText(uint8_t byte) {
  if (at == At::Hex)
    return pushHex(byte);
  if (at == At::Escape) {
    left = 4;
    if (byte == 'u')
      return go(At::Hex);
    bool isEscape = std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos;
    left = 0;
    return isEscape && !isPair && go(At::String);
  }
  if (isPair)
    return byte == '\\' && go(At::Escape);
  if (left > 0 || byte >= 0x80)
    return pushCharacter(byte);
  if (byte == '"')
    return go(isKey ? At::Colon : At::Next);
  return byte == '\\' ? go(At::Escape) : byte >= 0x20;
}

/// Reads a hex digit. Surrogates come in pairs: D800 to DBFF, then DC00 to DFFF.
bool JsonAutomaton::pushHex(uint8_t byte) {
  if (!isHex(byte))
    return false;
  bool isD = byte == 'D' || byte == 'd', isLow = !isDigit(byte) && (byte | 0x20) >= 'c';
  if (left == 4) {
    maySurrogate = isD;
    if (isPair && !isD)
      return false;
  } else if (left == 3 && maySurrogate && (isPair || byte >= '8')) {
    if (isPair != isLow)
      return false;
    isPair = !isPair;
  }
  return --left > 0 || go(At::String);
}

/// Reads a byte of a character of several bytes, by table 3-7 of the Unicode standard.
bool JsonAutomaton::pushCharacter(uint8_t byte) {
  if (left > 0) {
    bool isWithin = byte >= lowest && byte <= most;
    lowest = 0x80;
    most = 0xBF;
    --left;
    return isWithin;
  }
  if (byte < 0xC2 || byte > 0xF4)
    return false;
  left = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
  lowest = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  most = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  return true;
}

/// Reads a byte within or behind a number.
bool JsonAutomaton::pushNumber(uint8_t byte) {
  bool digit = isDigit(byte), point = byte == '.', exponent = byte == 'e' || byte == 'E';
  switch (at) {
  case At::Minus:
    return digit && go(byte == '0' ? At::Zero : At::Integer);
  case At::Point:
    return digit && go(At::Fraction);
  case At::Exponent:
    return digit ? go(At::ExponentDigits) : (byte == '+' || byte == '-') && go(At::ExponentSign);
  case At::ExponentSign:
    return digit && go(At::ExponentDigits);
  default:
    break;
  }
  if (digit && at != At::Zero)
    return true;
  if (point && (at == At::Zero || at == At::Integer))
    return go(At::Point);
  if (exponent && at != At::ExponentDigits)
    return go(At::Exponent);
  at = At::Next;
  return push(byte);
}

Grammar::Grammar(std::vector<Segment> given) : segments(std::move(given)) {
  for (Segment &segment : segments) {
    std::ranges::sort(segment.words);
    segment.words.erase(std::ranges::unique(segment.words).begin(), segment.words.end());
  }
}

bool Grammar::push(Place &place, std::string_view bytes) const {
  for (char one : bytes) {
    if (isComplete(place))
      return false;
    auto byte = static_cast<uint8_t>(one);
    if (!segments[place.segment].words.empty()) {
      if (!pushWord(place, byte))
        return false;
    } else if (!place.json.push(byte)) {
      return false;
    } else if (place.json.isComplete()) {
      place = {.segment = place.segment + 1, .json = {}};
    }
  }
  return true;
}

/// Keeps the words that have this byte next.
bool Grammar::pushWord(Place &place, uint8_t byte) const {
  const std::vector<std::string> &words = segments[place.segment].words;
  auto hasByte = [&](size_t word) { return static_cast<uint8_t>(words[word][place.offset]) == byte; };
  if (place.end == 0)
    place.end = words.size();
  while (place.first < place.end && !hasByte(place.first))
    ++place.first;
  while (place.first < place.end && !hasByte(place.end - 1))
    --place.end;
  if (place.first == place.end)
    return false;
  if (++place.offset == words[place.first].size())
    place = {.segment = place.segment + 1, .json = {}};
  return true;
}

std::shared_ptr<const Grammar> jsonObjectGrammar(const std::string &before) {
  std::vector<Grammar::Segment> segments(1);
  if (!before.empty())
    segments.insert(segments.begin(), {{before}});
  return std::make_shared<const Grammar>(std::move(segments));
}

TokenBytes::TokenBytes(const Tokenizer &tokenizer) {
  auto size = static_cast<int32_t>(tokenizer.vocabSize());
  // A decoder may drop the white space before the first token, so bytes are those behind a token with text.
  std::vector<int32_t> before;
  for (int32_t token = 0; token < size && before.empty(); ++token)
    if (tokenizer.hasToken(token) && tokenizer.markOf(token).empty() && tokenizer.decode({&token, 1}) == "a")
      before = {token};
  for (int32_t token = 0; token < size; ++token) {
    if (!tokenizer.hasToken(token) || token == tokenizer.eodToken())
      continue;
    std::string mark = tokenizer.markOf(token);
    bool isMark = !mark.empty();
    std::string bytes = isMark ? std::move(mark) : continuationOf(tokenizer, before, {&token, 1}).added();
    if (!bytes.empty())
      entries.push_back({std::move(bytes), token, isMark, 0});
  }
  std::ranges::sort(entries, {}, &Entry::bytes);
  entryOf.assign(static_cast<size_t>(size), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    entryOf[static_cast<size_t>(entries[i].token)] = i;
    if (i > 0)
      entries[i].shared = static_cast<size_t>(std::ranges::mismatch(entries[i - 1].bytes, entries[i].bytes).in1 -
                                              entries[i - 1].bytes.begin());
  }
}

std::string_view TokenBytes::bytesOf(int32_t token) const {
  auto at = static_cast<size_t>(token);
  return at < entryOf.size() && entryOf[at] < entries.size() ? entries[entryOf[at]].bytes : std::string_view();
}

bool TokenBytes::forbid(const Grammar &grammar, const Grammar::Place &place, std::span<float> logits) const {
  constexpr float forbidden = std::numeric_limits<float>::lowest(), least = forbidden / 2;
  std::vector<bool> isAllowed(logits.size());
  std::vector<Grammar::Place> places = {place}; // places[n]: behind n bytes of the entry; fewer if these bytes leave
  bool hasToken = false;
  for (const Entry &entry : entries) {
    if (entry.shared + 1 < places.size())
      places.resize(entry.shared + 1);
    else if (places.size() <= entry.shared)
      continue; // leaves the grammar within the bytes that it shares with the entry before
    while (places.size() <= entry.bytes.size()) {
      Grammar::Place next = places.back();
      if (!grammar.push(next, std::string_view(entry.bytes).substr(places.size() - 1, 1)))
        break;
      places.push_back(next);
    }
    bool isWithin = places.size() == entry.bytes.size() + 1 && (!entry.isMark || grammar.isAtWord(place));
    auto token = static_cast<size_t>(entry.token);
    if (!isWithin || token >= logits.size())
      continue;
    isAllowed[token] = true;
    hasToken = true;
  }
  for (size_t token = 0; token < logits.size(); ++token)
    logits[token] = !isAllowed[token] ? forbidden : logits[token] >= least ? logits[token] : least; // NaN: least
  return hasToken;
}

} // namespace espalier::rt
