// What is said when a rank fails: one record of the first failure, from which every other rank's
// stop follows.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::rt {

/// The first failure of a run: who failed, doing what, from which line of the model.
struct Failure {
  int rank = -1;
  int stage = -1;
  int64_t step = -1;      ///< optimizer step, from 0
  std::string action;     ///< "FORWARD of micro-batch 1 in slot 0", empty outside the schedule
  std::string subprogram; ///< "block.forward of layer 3", empty outside a subprogram
  std::string op;         ///< op of the model with its line: "matmul at gpt2.yaml:31:7"
  std::string message;    ///< what went wrong
  /// It may follow from another rank's end, as a transfer that fails: any other failure goes before it.
  bool isEcho = false;
  /// No failure in truth: a second such signal asked the rank to end at once. 0: none.
  int endSignal = 0;

  /// One sentence with all that is known, for people.
  std::string sentence() const;
};

/// What a rank that did not fail first was doing when it stopped.
struct Waiting {
  int rank = -1;
  std::string transfer; ///< "in/3", that it waited for: name and micro-batch; empty for none
};

/// Thrown out of a run after all its ranks have stopped.
class RankFailure : public std::runtime_error {
public:
  explicit RankFailure(Failure failure, std::vector<Waiting> waiting = {})
      : std::runtime_error(failure.sentence()), failure(std::move(failure)), waiting(std::move(waiting)) {}
  Failure failure;
  std::vector<Waiting> waiting; ///< the other ranks
};

/// Thrown in a rank that stops because another one failed; carries nothing, the first failure is
/// kept elsewhere.
class RankStopped : public std::runtime_error {
public:
  RankStopped() : std::runtime_error("another rank failed") {}
};

/// Thrown in a process of a run where another one tells why it ends: nothing is left to say.
class ReportedElsewhere : public std::runtime_error {
public:
  explicit ReportedElsewhere(int status) : std::runtime_error("another process reports"), status(status) {}
  int status; ///< with which this process is to end
};

/// A plan that cannot be loaded or run here; the text is a user error.
class PlanError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The machine or its device has too little memory for a plan; the text has both figures.
class MemoryError : public PlanError {
public:
  using PlanError::PlanError;
};

} // namespace espalier::rt
