// The cost of one segment under a plan: the sums of its terms, by phase and class.
#pragma once

#include "planner/model/cost.h"

#include <optional>
#include <vector>

namespace espalier::planner {

/// The cost of one segment under a config: seconds of one micro-batch (`step`: of one step), and bytes on one rank.
struct SegmentCost {
  PhaseSeconds forward, backward, weight, step;
  PerRecompute<PhaseSeconds> recompute;                     ///< extra time before backward
  PerRecompute<double> forwardTransfer{}, weightTransfer{}; ///< extra time if values are offloaded
  PerAxis<double> hideableStep{};                           ///< once per step, beside the last backward

  double elements = 0;                                              ///< parameters before ZeRO
  double parameterBytes = 0, gradientBytes = 0, optimizerBytes = 0; ///< after ZeRO
  double unshardedBytes = 0; ///< ZeRO 2 and 3: gathered parameters and gradients before their reduction
  /// The bytes above that a stage saves if it holds both the embedding and the tied head.
  double tiedParameterBytes = 0, tiedGradientBytes = 0, tiedOptimizerBytes = 0, tiedUnshardedBytes = 0;

  PerRecompute<double> savedBytes{}; ///< kept for backward
  /// Under schedules with separate weight gradients: the part of savedBytes that they read, and what backward keeps for
  /// them beside.
  PerRecompute<double> weightBytes{}, passedBytes{};
  /// The part of savedBytes that is the incoming activation. Weight gradients read it if `weightReadsStream`.
  PerRecompute<double> streamBytes{};
  PerRecompute<bool> weightReadsStream{};
  PerRecompute<double> forwardPeakBytes{}, backwardPeakBytes{}, workspaceBytes{}; ///< transient
  double stepBytes = 0;                                                           ///< held only while the step runs
  double stepPeakBytes = 0;                                                       ///< transient while it runs

  /// Device staging buffers for offloaded optimizer state, parameters and kept values; 0 without offloading.
  double optimizerBufferBytes = 0, parameterBufferBytes = 0;
  PerRecompute<double> savedBufferBytes{};
  bool keepsOptimizerOnDevice() const { return optimizerBufferBytes <= 0; }
  bool keepsParametersOnDevice() const { return parameterBufferBytes <= 0; }
  bool keepsSavedOnDevice(Recompute recompute) const { return savedBufferBytes[recompute] <= 0; }
};

/// Returns the terms of the first pattern of a kind that matches a plan; null if none does.
const PatternTerms *termsOf(const SegmentKind &kind, const ParallelConfig &config);

/// Sorts terms into program order, as segmentCost() requires. The sort is stable.
void orderTerms(PatternTerms &terms);

/// Sets SegmentKind::like of all kinds.
void findLikeKinds(Problem &problem);

/// The costs of segments under one config. A kind that is like another one evaluates only its attention; all other
/// terms are evaluated once for both.
class SegmentCosts {
public:
  SegmentCosts(const Problem &problem, const ParallelConfig &config);

  /// Sums the terms of the first matching pattern; empty if no pattern matches. Kind -1 (no segment) costs nothing.
  const std::optional<SegmentCost> &of(int kind);

  /// Changes the order of context ranks. Only attention, workspaces and the simulated programs are evaluated again.
  void reorder(bool zigzag);

  /// Number of compute terms that were evaluated so far.
  int64_t work() const { return evaluations; }

private:
  /// The evaluated terms of one kind.
  struct Evaluated {
    const PatternTerms *terms = nullptr; ///< null if no pattern matches
    std::vector<double> computeSeconds;  ///< by term
    SegmentCost memory;                  ///< without the times
    std::optional<SegmentCost> cost;     ///< empty without terms, and after a change of the order
  };
  void evaluate(int kind, const Evaluated *like, Evaluated &result);
  /// Sets the cost from the memory and the times. With `onlyAttention`, the times of other terms are known.
  void addTimes(bool onlyAttention, Evaluated &result);

  const Problem &problem;
  ParallelConfig config;
  std::vector<double> symbols;
  std::vector<std::optional<Evaluated>> kinds;
  int64_t evaluations = 0;
};

/// Sums the terms of the first matching pattern; empty if no pattern matches. Kind -1 (no segment) costs nothing.
std::optional<SegmentCost> segmentCost(const Problem &problem, int kind, const ParallelConfig &config);

/// Adds the cost of offloading state of a segment to host memory, over a link of W bytes per second in each direction.
/// A transfer of B bytes beside t seconds of work takes max(t, B / W) + 0.1 min.
///
/// - Optimizer: S bytes of masters and moments pass through the device once per step, in both directions at once. Two
///   buffers (2 S) suffice: one for the update, and one for the outgoing and then the next state. Megatron-LM's
///   --offload-optimizer-states does the same. ZeRO-Offload (Ren et al. 2021) updates on the host instead.
/// - Activations: a layer keeps K bytes of a micro-batch. They leave beside its forward and return beside its recompute
///   and backward, and once more beside its weight gradients if the schedule splits those. The buffers take 4 K: one
///   for compute and one for transfer, in each direction. Embedding and head (not `isLayer`) are not offloaded: their
///   backward follows at once, or they keep little.
/// - Parameters: a rank's shard of P bytes arrives before each all-gather of ZeRO 3, beside forward and beside
///   backward. G bytes of gradients leave after each reduction, beside backward or beside the separate weight
///   gradients, and are summed on the host. Once per step max(P, G) is transferred with S. The buffers take 2 (P + G),
///   one for compute and one for transfer, or P + G for embedding and head. DeepSpeed's offload_param and FSDP's
///   CPUOffloadPolicy do the same.
void addOffload(SegmentCost &cost, const Machine &machine, const ParallelConfig &config, bool isLayer);

} // namespace espalier::planner
