// What every byte holds: an interval map. Neighbours with equal states are one piece.
#pragma once

#include "runtime/verify/events.h"

#include <algorithm>
#include <map>
#include <optional>

namespace espalier::rt::verify {

/// Why a byte does not hold what is asked of it.
struct Fault {
  enum Kind { OtherContent, Written, Read, OtherCut };
  Kind kind;
  int64_t byte;
  Content found;
};

/// No queue: nobody asks in the name of a flight.
constexpr uint32_t noQueue = 0;

class ByteState {
public:
  /// Bytes [0, end) that hold `content`.
  explicit ByteState(int64_t end, Content content = {});

  /// The first byte of the span (of its own part) whose content `isGood` refuses, or that a flight writes, unless one
  /// of the same queue: that has ended by then.
  template <typename IsGood> std::optional<Fault> check(Span span, IsGood isGood, uint32_t queue = noQueue) const {
    for (auto piece = at(span.begin); piece != pieces.end() && piece->first < span.end; ++piece) {
      const Piece &state = piece->second;
      int64_t byte = std::max(piece->first, span.begin);
      if (state.writers && !(queue && state.queue == queue))
        return Fault{Fault::Written, byte, state.own};
      if (isCutOtherwise(state, span))
        return Fault{Fault::OtherCut, byte, state.own};
      if (!isGood(state.own))
        return Fault{Fault::OtherContent, byte, state.own};
      if (state.cut && !span.part && !isGood(state.rest))
        return Fault{Fault::OtherContent, byte, state.rest};
    }
    return std::nullopt;
  }

  /// No flight reads or writes the bytes, but for those of a queue.
  std::optional<Fault> free(Span span, uint32_t queue = noQueue) const;

  /// What the span holds from now on; of an own part, other parts keep what they held.
  void set(Span span, const Content &content);

  /// Changes the content of each piece of the span.
  template <typename Change> void change(Span span, Change change) {
    forEachPiece(span, [&](int64_t begin, Piece &piece) {
      cut(piece, span);
      change(begin, piece.own);
      if (piece.cut && !span.part)
        change(begin, piece.rest);
      uncut(piece);
    });
  }

  /// A flight of a queue that reads or writes the bytes begins or ends.
  void open(Span span, bool isWrite, uint32_t queue);
  void close(Span span, bool isWrite);

  /// Goes over all pieces: span and content; where parts differ, first what the others hold, then the own part.
  template <typename Visit> void forEach(Visit visit) const {
    for (auto piece = pieces.begin(); std::next(piece) != pieces.end(); ++piece) {
      const Piece &state = piece->second;
      visit(Span{piece->first, std::next(piece)->first, 0}, state.rest);
      if (state.cut)
        visit(Span{state.cutBegin, state.cutEnd, state.cut}, state.own);
    }
  }

private:
  struct Piece {
    Content own, rest;
    Axes cut = 0;
    int64_t cutBegin = 0, cutEnd = 0;
    uint32_t readers = 0, writers = 0;
    uint32_t queue = 0; ///< of all flights that read or write it; `manyQueues` where they differ
    bool operator==(const Piece &) const = default;
  };
  using Pieces = std::map<int64_t, Piece>; ///< by their first byte; each reaches to the next
  static constexpr uint32_t manyQueues = ~0u;

  static bool isCutOtherwise(const Piece &piece, const Span &span) {
    return piece.cut && span.part &&
           (piece.cut != span.part || piece.cutBegin != span.begin || piece.cutEnd != span.end);
  }
  static void cut(Piece &piece, const Span &span);
  static void uncut(Piece &piece);
  Pieces::const_iterator at(int64_t byte) const { return std::prev(pieces.upper_bound(byte)); }
  Pieces::iterator split(int64_t byte);
  void join(int64_t begin, int64_t end);

  template <typename Visit> void forEachPiece(Span span, Visit visit) {
    if (span.begin >= span.end)
      return;
    auto piece = split(span.begin), end = split(span.end);
    for (; piece != end; ++piece)
      visit(piece->first, piece->second);
    join(span.begin, span.end);
  }

  Pieces pieces;
};

} // namespace espalier::rt::verify
