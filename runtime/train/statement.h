// What the processes of a run must have in common: code, plan, data, weights, options, and the variables that change
// numbers. Each process states its own, and all compare them before the first step.
#pragma once

#include "runtime/checkpoint/agree.h"
#include "runtime/checkpoint/start.h"
#include "runtime/train/run_options.h"

#include <span>

namespace espalier::rt {

/// The kinds of terms. The table in statement.cpp has their texts.
enum class TermKind { Build, Library, Plan, Data, Weights, Option, Variable };

/// A fact that must be equal in all processes.
struct Term {
  TermKind kind = TermKind::Build;
  std::string name, value; ///< the name is empty if the kind has one term

  bool operator==(const Term &) const = default;
};

/// The terms of a process. Each pair of kind and name occurs once.
using Statement = std::vector<Term>;

/// The objects that a statement describes besides plan and options.
struct StatedInputs {
  std::string data;                       ///< the text that identifies the training data
  const Dataset *training = nullptr;      ///< never null
  const Dataset *heldOut = nullptr;       ///< null: no evaluation
  const StartingWeights *start = nullptr; ///< null: initial values, or a checkpoint of the run itself
};

/// Returns the environment variables that change what libraries compute.
std::span<const char *const> numericVariables();

/// Returns a checksum of a plan.
std::string planDigest(const pb::Plan &plan);

/// Returns the statement of this process. Throws DataError if a file cannot be read.
Statement statementOf(const Program &program, const RunOptions &options, const StatedInputs &inputs);

/// The statement of a rank's process.
struct Stated {
  std::string host;
  Statement statement;
};

/// Compares the statements of all ranks. Returns a sentence about the first term that differs, with its values, the
/// hosts that have them and the way out, or an empty string.
std::string differenceOf(std::span<const Stated> ranks);

/// A rank's process, as all ranks know it after they have met.
struct Met {
  int64_t pid = 0;
  std::string host;
};

/// Compares the statements of all ranks; called by every rank. One message per rank suffices if all are equal. Returns
/// the result of differenceOf, the same on all ranks, and fills `met` by rank.
std::string compareStatements(Agreement &agreement, const Statement &own, std::vector<Met> &met);

} // namespace espalier::rt
