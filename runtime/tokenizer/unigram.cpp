#include "runtime/tokenizer/unigram.h"

#include "runtime/utf8.h"

namespace espalier::rt {

std::vector<Unigram::Piece> Unigram::encode(std::string_view text) const {
  struct Place { // the best pieces of the text before a position
    double sum = 0;
    size_t start = std::string_view::npos; // of the last piece
    int32_t id = -1;
  };
  std::vector<Place> best(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    auto offer = [&](size_t bytes, int32_t id, double score) {
      Place &place = best[at + bytes];
      double sum = rounded(best[at].sum + score);
      if (place.start == std::string_view::npos || sum > place.sum)
        place = {sum, at, id};
    };
    size_t character = decodeUtf8(text, at).bytes;
    bool isKnown = false;
    tree.visitPrefixes(text.substr(at), [&](size_t bytes, int32_t id) {
      offer(bytes, id, scoreOfId[id]);
      isKnown |= bytes == character;
    });
    if (!isKnown)
      offer(character, -1, unknownScore);
    at += character;
  }
  std::vector<Piece> pieces;
  for (size_t end = text.size(); end > 0; end = best[end].start)
    pieces.push_back({text.substr(best[end].start, end - best[end].start), best[end].id});
  std::ranges::reverse(pieces);
  return pieces;
}

} // namespace espalier::rt
