// The subprograms of a call, one behind the other, as values that come of each other: which parameters a value depends
// on, which gradients depend on it, and which values are cotangents. Bytes play no part: rule C shows that they hold
// what is named.
#pragma once

#include "runtime/verify/values.h"

#include <map>
#include <set>
#include <utility>

namespace espalier::rt::verify {

/// Parameters, each by its bucket and its first element there. `weights`: those of products and tables; `others`: those
/// that generated kernels read, or add up.
struct Parameters {
  using Set = std::set<std::pair<uint32_t, uint64_t>>;
  Set weights, others;

  bool isEmpty() const { return weights.empty() && others.empty(); }
  void include(const Parameters &more);
};

/// Whether two have one in common: a weight if both have any, as a kernel may read what another one in its place does
/// not. What has none is like everything.
bool areAkin(const Parameters &a, const Parameters &b);
/// Whether the weights of one are all among those of the other.
bool isWithin(const Parameters &a, const Parameters &b);

/// A value of layer `layer` + the call's.
struct ValueUse {
  uint32_t value = 0;
  int32_t layer = 0;
  auto operator<=>(const ValueUse &) const = default;
};

/// One instruction of a subprogram.
struct TraceStep {
  const pb::Instruction *instruction = nullptr;
  std::string name;           ///< for errors
  int program = 0;            ///< which one of the call's it stands in
  std::vector<ValueUse> uses; ///< by buffer; of a transfer sources, then targets
  std::vector<bool> isRead, isWritten;
  bool isElementwise = false; ///< reads and adds to parameters as numbers, not as weights
  bool isCotangent = false;   ///< reads a cotangent
  std::vector<int64_t> draws; ///< ops whose random bits a generated kernel draws
  Parameters before;          ///< what it reads depends on these, but for cotangents
  Parameters behind;          ///< gradients that come of it
  Parameters factors;         ///< of a product: the weight that it multiplies by, or whose gradient it makes
};

/// Dependences end at what draws random bits: a value depends on the parameters between the draw before it and itself.
class CallTrace {
public:
  CallTrace(const pb::Plan &plan, const Values &values, const pb::Call &call);

  const std::vector<TraceStep> &steps() const { return list; }
  bool hasGradients() const { return addsGradients; }
  /// Whether a step is of forward or backward: of the first subprogram, or of one that makes cotangents.
  bool isTrained(const TraceStep &step) const { return step.program == 0 || backward.count(step.program) > 0; }
  /// Whether a value comes of what backward begins with: a cotangent that is handed to it, or the scale of the loss.
  bool isCotangent(const ValueUse &use) const { return cotangents.count(use) + cotangents.count(rootOf(use)) > 0; }
  /// Parameters that a value depends on, or gradients that depend on it.
  Parameters before(const ValueUse &use) const { return of(origins, use); }
  Parameters behind(const ValueUse &use) const { return of(sinks, use); }
  /// Weights of the products nearest before a value, and of those that it goes into next.
  Parameters madeBy(const ValueUse &use) const { return of(makers, use); }
  Parameters goesTo(const ValueUse &use) const { return of(takers, use); }
  /// The step that wrote a value, and as which of its buffers; null where none did.
  std::pair<const TraceStep *, int> writerOf(const ValueUse &use) const;

private:
  /// By value; of a value that is written in pieces, of all of them.
  struct Map {
    std::map<ValueUse, Parameters> own, pieces;
  };

  ValueUse rootOf(const ValueUse &use) const { return {values[use.value].root, use.layer}; }
  void addStep(const pb::Subprogram &program, int number, int instruction);
  void addUses(TraceStep &step, const pb::Instruction &instruction);
  void followForward(size_t index);
  void followBackward(TraceStep &step);
  Parameters of(const Map &map, const ValueUse &use) const;
  void include(Map &map, const ValueUse &use, const Parameters &more);
  bool isFound(const TraceStep &step, const ValueUse &use);
  void addParameter(Parameters &to, const TraceStep &step, size_t operand) const;
  void addFactors(TraceStep &step) const;
  Parameters makersOf(const TraceStep &step) const;

  const pb::Plan &plan;
  const Values &values;
  std::vector<TraceStep> list;
  bool addsGradients = false;
  std::set<int> backward; ///< subprograms that make cotangents
  std::set<ValueUse> cotangents, foundFirst;
  std::map<ValueUse, std::pair<size_t, int>> writers;
  Map origins, sinks, makers, takers;
};

} // namespace espalier::rt::verify
