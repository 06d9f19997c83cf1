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

std::optional<Fault> ByteState::ready(Span span, const Instance &instance, int64_t origin) const {
  std::optional<uint32_t> write;
  return check(span, [&](const Content &content) {
    bool isSame = content.kind == Content::Ready && content.instance == instance && content.origin == origin &&
                  content.write == write.value_or(content.write);
    write = content.write;
    return isSame;
  });
}

std::optional<Fault> ByteState::free(Span span) const {
  for (auto piece = at(span.begin); piece != pieces.end() && piece->first < span.end; ++piece) {
    const Piece &state = piece->second;
    int64_t byte = std::max(piece->first, span.begin);
    if (state.writer)
      return Fault{Fault::Written, byte, state.own};
    if (state.readers)
      return Fault{Fault::Read, byte, state.own};
  }
  return std::nullopt;
}

void ByteState::set(Span span, const Content &content) {
  change(span, [&](Content &old) { old = content; });
}

void ByteState::open(Span span, bool isWrite) {
  forEachPiece(span, [&](Piece &piece) { ++(isWrite ? piece.writer : piece.readers); });
}

void ByteState::close(Span span, bool isWrite) {
  forEachPiece(span, [&](Piece &piece) { --(isWrite ? piece.writer : piece.readers); });
}

/// From now on the own part has a content of its own.
void ByteState::cut(Piece &piece, const Span &span) {
  if (piece.cut || !span.part)
    return;
  piece.rest = piece.own;
  piece.cut = span.part;
  piece.cutBegin = span.begin;
  piece.cutEnd = span.end;
}

/// Parts that hold the same are no parts.
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
