// A unigram model: of all ways to write a text as pieces, the one with the highest sum of scores (Viterbi).
#pragma once

#include "runtime/tokenizer/prefix_tree.h"

namespace espalier::rt {

/// The pieces and scores of a unigram model.
class Unigram {
public:
  /// An unknown character scores this much less than the worst piece.
  static constexpr float unknownPenalty = 10;

  /// Whether sums of scores are kept in double precision, as HF's tokenizers do, or rounded to float, as SentencePiece
  /// does.
  enum class Sums { doubles, floats };
  /// Creates a model from texts with ids and the score of each id. `unknownScore` is the score of a character that is
  /// no piece. Throws DataError naming `file` for a piece that is too long.
  Unigram(const std::string &file, std::vector<PrefixTree::Entry> pieces, std::vector<double> scoreOfId,
          double unknownScore, Sums sums)
      : tree(file, std::move(pieces)), scoreOfId(std::move(scoreOfId)), unknownScore(unknownScore), sums(sums) {}

  /// A piece of a text. Its id is -1 if it is an unknown character.
  struct Piece {
    std::string_view text;
    int32_t id;
  };
  /// Returns the best pieces of a text, in order. Among equal sums, the piece that was found first counts.
  std::vector<Piece> encode(std::string_view text) const;

private:
  double rounded(double sum) const { return sums == Sums::floats ? static_cast<float>(sum) : sum; }
  PrefixTree tree;
  std::vector<double> scoreOfId;
  double unknownScore;
  Sums sums;
};

} // namespace espalier::rt
