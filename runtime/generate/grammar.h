// Constrained decoding: a pushdown automaton over bytes that accepts the JSON objects, and texts with JSON objects
// between fixed words. A token whose bytes leave the grammar is never chosen.
#pragma once

#include "runtime/tokenizer/tokenizer.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// Reads a JSON object of UTF-8 text byte by byte. Levels and runs of white space are bounded, so that a model cannot
/// open levels or write white space without end.
class JsonAutomaton {
public:
  static constexpr int mostLevels = 64, mostSpaces = 32;

  /// Reads a byte. Returns false, and is unusable, if no JSON object begins with the bytes until now.
  bool push(uint8_t byte);
  /// Whether the bytes are a whole object.
  bool isComplete() const { return at == At::End; }

private:
  enum class At : uint8_t {
    Start,      ///< before the outermost object
    Value,      ///< before a value
    FirstValue, ///< before the first value of a list, or its end
    FirstKey,   ///< before the first key of an object, or its end
    Key,        ///< before a key
    Colon,      ///< behind a key
    Next,       ///< behind a value
    String,
    Escape,
    Hex,
    Word, ///< within true, false or null
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    End
  };

  bool pushValue(uint8_t byte);
  bool pushText(uint8_t byte);
  bool pushHex(uint8_t byte);
  bool pushNumber(uint8_t byte);
  bool pushCharacter(uint8_t byte);
  bool open(bool isObject);
  bool close(bool isObject);
  bool go(At next) {
    at = next;
    return true;
  }

  uint64_t objects = 0; ///< bit i: whether level i is an object
  const char *word = nullptr;
  At at = At::Start;
  uint8_t levels = 0, spaces = 0;
  uint8_t left = 0;                   ///< hex digits, or bytes of a character, that follow
  uint8_t lowest = 0x80, most = 0xBF; ///< bounds of the next byte of a character
  bool isKey = false;
  bool isPair = false;       ///< the second half of a pair of surrogates follows
  bool maySurrogate = false; ///< the first hex digit is D
};

/// A text in segments. Each is one of some words, or a JSON object.
class Grammar {
public:
  /// One of `words`; a JSON object if there is none. No word begins another word, and none is empty.
  struct Segment {
    std::vector<std::string> words;
  };
  /// Where a text is in the grammar.
  struct Place {
    size_t segment = 0, offset = 0;
    size_t first = 0, end = 0; ///< the words that begin with the bytes since the begin of the segment; end 0: all
    JsonAutomaton json;
  };

  explicit Grammar(std::vector<Segment> segments);

  /// Moves a place over bytes. Returns false if they leave the grammar; the place is then unusable.
  bool push(Place &place, std::string_view bytes) const;
  bool isComplete(const Place &place) const { return place.segment == segments.size(); }
  /// Returns whether the next byte is one of a word.
  bool isAtWord(const Place &place) const { return !isComplete(place) && !segments[place.segment].words.empty(); }

private:
  bool pushWord(Place &place, uint8_t byte) const;

  std::vector<Segment> segments; ///< their words are sorted
};

/// Returns the grammar of a JSON object, behind `before`.
std::shared_ptr<const Grammar> jsonObjectGrammar(const std::string &before = "");

/// The bytes of all tokens of a vocabulary, in an order that tests beginnings that tokens share once.
class TokenBytes {
public:
  explicit TokenBytes(const Tokenizer &tokenizer);

  /// Forbids, by the lowest logit, the tokens that leave the grammar. Returns whether a token is left. Tokens that mark
  /// places of a text are left within words only.
  bool forbid(const Grammar &grammar, const Grammar::Place &place, std::span<float> logits) const;
  /// Returns the bytes of a token.
  std::string_view bytesOf(int32_t token) const;

private:
  struct Entry {
    std::string bytes;
    int32_t token;
    bool isMark;
    size_t shared; ///< bytes that are equal to those of the entry before
  };
  std::vector<Entry> entries;  ///< sorted by their bytes
  std::vector<size_t> entryOf; ///< of a token; the number of entries: none
};

} // namespace espalier::rt
