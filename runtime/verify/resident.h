// Values that live from entry to entry, and sums over micro-batches: parameters are updated once, from the whole sum of
// their gradients; scalars are agreed upon when every term is in.
#pragma once

#include "runtime/verify/play.h"

#include <fmt/format.h>

namespace espalier::rt::verify {

class Resident {
public:
  /// `position` says where the play stands, for errors.
  Resident(const StageView &stage, ByteState &bytes, PlanErrors &errors, std::function<std::string()> position)
      : stage(stage), bytes(bytes), errors(errors), position(std::move(position)) {}

  /// Parameters and state are there, nothing else is.
  void begin();

  void play(const Step &step, const CallView &call, const ActionView &action);

  void agree();

  /// Parameters and state are there again, of a training entry all updated.
  void end();

private:
  /// An operand as elements of one parameter.
  struct Target {
    const Holding *holding = nullptr;
    Span span;                       ///< in the arena
    int64_t first = 0, elements = 0; ///< of the parameter, or of its state
    Axes part = 0;
  };

  std::optional<Target> find(const Operand &operand, const CallView &call) const;
  void touch(const Operand &operand, const Target &target);
  void readGradient(const Target &target);
  void addTerm(const Operand &operand, const Target &target);
  void checkUpdate(const Step &step, const std::vector<Target> &targets);
  void transfer(const Step &step, const Target &from, const Target &to);
  void gatherUpdated(const Step &step, const Target &to);
  void touchScalars(const Operand &operand);
  void checkSums();
  uint32_t scalarTerms(int slot) const;
  Content contentOf(const Holding &holding, uint32_t family, uint32_t version) const;
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(position() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  const StageView &stage;
  ByteState &bytes;
  PlanErrors &errors;
  const CallView *call = nullptr;
  const ActionView *action = nullptr;
  const std::function<std::string()> position;
  std::map<int, uint32_t> scalars; ///< terms of each sum
  bool isAgreed = false;
  std::map<int, Target> updates; ///< of the running call: elements that an instruction updates, by instruction
};

} // namespace espalier::rt::verify
