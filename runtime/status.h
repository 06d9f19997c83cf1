// Failures of ranks. The first failure is recorded; every other rank stops because of it.
#pragma once

#include "messages/plan_error.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::rt {

/// The first failure of a run: the rank, its position, and the line in the model file.
struct Failure {
  int rank = -1;
  int stage = -1;
  int64_t step = -1;      ///< optimizer step, from 0
  std::string action;     ///< "FORWARD of micro-batch 1 in slot 0", empty outside the schedule
  std::string subprogram; ///< "block.forward of layer 3", empty outside a subprogram
  std::string op;         ///< op of the model with its line: "matmul at gpt2.yaml:31:7"
  std::string message;    ///< what went wrong
  /// May result from another rank's end, as a failed transfer does. Any other failure takes precedence.
  bool isEcho = false;
  /// The same would occur again after a restart, as with a full disk.
  bool isFinal = false;
  /// Not a failure: a second signal of this number asked the rank to end at once. 0: none.
  int endSignal = 0;

  /// Returns one sentence with all known facts, for users.
  std::string sentence() const;
};

/// The state of a rank that did not fail first when it stopped.
struct Waiting {
  int rank = -1;
  std::string transfer; ///< the transfer that it waited for, as "in/3": name and micro-batch; empty for none
};

/// A rank that was slow when a run ended; see SlowRanks.
struct SlowAtEnd {
  int rank = -1;
  double ratio = 1; ///< its compute time over the median
};

/// Thrown from a run after all its ranks have stopped.
class RankFailure : public std::runtime_error {
public:
  explicit RankFailure(Failure failure, std::vector<Waiting> waiting = {})
      : std::runtime_error(failure.sentence()), failure(std::move(failure)), waiting(std::move(waiting)) {}
  Failure failure;
  std::vector<Waiting> waiting; ///< the other ranks
  std::vector<SlowAtEnd> slow;  ///< the slowest first, at most four
};

/// Thrown in a rank that stops because another rank failed. The first failure is recorded elsewhere.
class RankStopped : public std::runtime_error {
public:
  RankStopped() : std::runtime_error("another rank failed") {}
};

/// Thrown in a process of a run if another process reports the reason of its end.
class ReportedElsewhere : public std::runtime_error {
public:
  explicit ReportedElsewhere(int status) : std::runtime_error("another process reports"), status(status) {}
  int status; ///< exit status of this process
};

/// A failure of a running rank that would occur again after a restart.
class FinalError : public PlanError {
public:
  using PlanError::PlanError;
};

/// The machine or a device has too little memory for a plan. The text has both sizes.
class MemoryError : public PlanError {
public:
  using PlanError::PlanError;
};

} // namespace espalier::rt
