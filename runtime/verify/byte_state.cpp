#include "runtime/verify/byte_state.h"

#include <limits>

namespace espalier::rt::verify {

ByteState::ByteState(int64_t end, Content content) {
  Piece piece, behind;
  piece.own = piece.rest = content;
  pieces[std::numeric_limits<int64_t>::min()] = behind;
  pieces[0] = piece;
  pieces[end] = behind;
  pieces[std::numeric_limits<int64_t>::max()] = behind;
}

std::optional<Fault> ByteState::free(Span span, uint32_t queue) const {
  for (auto piece = at(span.begin); piece != pieces.end() && piece->first < span.end; ++piece) {
    const Piece &state = piece->second;
    int64_t byte = std::max(piece->first, span.begin);
    if (queue && state.queue == queue)
      continue;
    if (state.writers)
      return Fault{Fault::Written, byte, state.own};
    if (state.readers)
      return Fault{Fault::Read, byte, state.own};
  }
  return std::nullopt;
}

void ByteState::set(Span span, const Content &content) {
  change(span, [&](int64_t, Content &old) { old = content; });
}

void ByteState::open(Span span, bool isWrite, uint32_t queue) {
  forEachPiece(span, [&](int64_t, Piece &piece) {
    bool isFirst = piece.readers + piece.writers == 0;
    piece.queue = isFirst || piece.queue == queue ? queue : manyQueues;
    ++(isWrite ? piece.writers : piece.readers);
  });
}

void ByteState::close(Span span, bool isWrite) {
  forEachPiece(span, [&](int64_t, Piece &piece) {
    --(isWrite ? piece.writers : piece.readers);
    if (piece.readers + piece.writers == 0)
      piece.queue = 0;
  });
}

/// Gives the rank's own shard a content that is separate from the content of the other shards.
void ByteState::cut(Piece &piece, const Span &span) {
  if (piece.cut || !span.part)
    return;
  piece.rest = piece.own;
  piece.cut = span.part;
  piece.cutBegin = span.begin;
  piece.cutEnd = span.end;
}

/// Merges the shards of a piece again if all of them have the same content.
void ByteState::uncut(Piece &piece) {
  if (piece.cut && !(piece.own == piece.rest))
    return;
  piece.rest = piece.own;
  piece.cut = 0;
  piece.cutBegin = piece.cutEnd = 0;
}

ByteState::Pieces::iterator ByteState::split(int64_t byte) {
  auto next = pieces.lower_bound(byte);
  if (next != pieces.end() && next->first == byte)
    return next;
  return pieces.emplace_hint(next, byte, std::prev(next)->second);
}

void ByteState::join(int64_t begin, int64_t end) {
  auto piece = pieces.lower_bound(begin);
  while (piece != pieces.end() && piece->first <= end) {
    auto before = std::prev(piece);
    piece = before->second == piece->second ? pieces.erase(piece) : std::next(piece);
  }
}

} // namespace espalier::rt::verify
