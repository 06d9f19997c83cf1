// The state of every byte of a memory, as an interval map. Neighbouring intervals with equal states are merged.
#pragma once

#include "runtime/verify/events.h"

#include <algorithm>
#include <map>
#include <optional>

namespace espalier::rt::verify {

/// The reason why a byte does not have the expected state.
struct Fault {
  /// The content is another one, a transfer writes or reads the byte, or the byte is cut along other axes.
  enum Kind { OtherContent, Written, Read, OtherCut };
  Kind kind;
  int64_t byte;
  Content found;
};

/// Marks a check that no in-flight transfer makes.
constexpr uint32_t noQueue = 0;

/// An interval map from the bytes of one memory to their content and to the in-flight transfers that access them.
class ByteState {
public:
  /// Creates a map in which the bytes [0, end) hold `content`.
  explicit ByteState(int64_t end, Content content = {});

  /// Returns a fault at the first byte of the span (of the own shard, if the span has one) whose content `isGood`
  /// rejects, or that an in-flight transfer writes. Writers on `queue` are allowed, because transfers of one queue
  /// finish in order.
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

  /// Returns a fault at the first byte that an in-flight transfer reads or writes. Transfers on `queue` are allowed.
  std::optional<Fault> free(Span span, uint32_t queue = noQueue) const;

  /// Sets the content of the span. If the span is a shard, the other shards keep their content.
  void set(Span span, const Content &content);

  /// Calls change(begin, content) for each piece of the span.
  template <typename Change> void change(Span span, Change change) {
    forEachPiece(span, [&](int64_t begin, Piece &piece) {
      cut(piece, span);
      change(begin, piece.own);
      if (piece.cut && !span.part)
        change(begin, piece.rest);
      uncut(piece);
    });
  }

  /// Records that an in-flight transfer on `queue` starts to read or write the bytes.
  void open(Span span, bool isWrite, uint32_t queue);
  /// Records that an in-flight transfer no longer reads or writes the bytes.
  void close(Span span, bool isWrite);

  /// Calls visit(span, content) for all pieces in order. If the shards differ, visits the other shards before the own
  /// shard.
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
    uint32_t queue =
        0; ///< the queue of all in-flight transfers that access the piece; `manyQueues` if they use several
    bool operator==(const Piece &) const = default;
  };
  using Pieces = std::map<int64_t, Piece>; ///< by first byte; each piece ends where the next one begins
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
