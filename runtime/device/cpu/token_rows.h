// The rows that instructions of a generation plan compute for tokens. With these, the CPU computes only the rows of
// active tokens, and prompts of different lengths lie side by side without padding.
#pragma once

#include "format/plan.pb.h"

namespace espalier::rt {

/// How the work of an instruction divides into rows.
struct TokenRows {
  enum Unit {
    None,     ///< the work does not divide by sequences
    Sequence, ///< one token per sequence
    Token     ///< prompt_tokens tokens per sequence
  };
  Unit unit = None;
  int64_t rows = 0; ///< of the instruction, per unit
};

/// Returns the rows of a launch or a call. Plans for training have none.
TokenRows tokenRows(const pb::Plan &plan, const pb::Instruction &instruction);

/// Returns whether all instructions of a generation plan compute the same for a token whatever row it has in its batch,
/// or are told its row (ATTEND_CACHE, TAKE_ROW).
bool canPackTokens(const pb::Plan &plan);

} // namespace espalier::rt
