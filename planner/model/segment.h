// What one segment costs under a plan: the sums of its terms, by phase and class.
#pragma once

#include "planner/model/cost.h"

#include <optional>

namespace espalier::planner {

/// Time of one micro-batch (or step) of one layer, on one rank. All communication in it is exposed
/// time.
struct PhaseSeconds {
  double compute = 0;
  PerAxis<double> communication{};
  double hostTransfer = 0; ///< to or from host memory, beyond what runs beside the rest
  double total() const;
};

/// What one segment costs under a config: seconds of one micro-batch, of `step` once per step; bytes on one rank.
struct SegmentCost {
  PhaseSeconds forward, backward, weight, step;
  PerRecompute<PhaseSeconds> recompute;                     ///< extra time before backward
  PerRecompute<double> forwardTransfer{}, weightTransfer{}; ///< extra time where something is offloaded
  PerAxis<double> hideableStep{};                           ///< once per step, beside the last backward

  double elements = 0;                                              ///< parameters before ZeRO
  double parameterBytes = 0, gradientBytes = 0, optimizerBytes = 0; ///< after ZeRO
  double unshardedBytes = 0;                                        ///< ZeRO 2 and 3: gathered, or not yet reduced
  /// Part of the above: what is free where embedding and head, which are tied, lie on one stage.
  double tiedParameterBytes = 0, tiedGradientBytes = 0, tiedOptimizerBytes = 0, tiedUnshardedBytes = 0;

  PerRecompute<double> savedBytes{};                                              ///< kept for backward
  PerRecompute<double> forwardPeakBytes{}, backwardPeakBytes{}, workspaceBytes{}; ///< transient
  double stepBytes = 0;                                                           ///< held only while the step runs
  double stepPeakBytes = 0;                                                       ///< transient while it runs

  /// Device buffers that offloaded state, parameters and kept values go through; 0 where nothing is offloaded.
  double optimizerBufferBytes = 0, parameterBufferBytes = 0;
  PerRecompute<double> savedBufferBytes{};
  bool keepsOptimizerOnDevice() const { return optimizerBufferBytes <= 0; }
  bool keepsParametersOnDevice() const { return parameterBufferBytes <= 0; }
  bool keepsSavedOnDevice(Recompute recompute) const { return savedBufferBytes[recompute] <= 0; }
};

/// Whether a set of terms holds for a plan.
bool matches(const Pattern &pattern, const ParallelConfig &config);

/// Puts terms in the order of their programs, as segmentCost reads them; those at one position keep theirs.
void orderTerms(PatternTerms &terms);

/// Sums the terms of the first pattern that matches; empty where none does. Kind -1, no segment, costs nothing.
std::optional<SegmentCost> segmentCost(const Problem &problem, int kind, const ParallelConfig &config);

/// Adds what it costs that something of a segment lives in host memory, behind a link of W bytes per second in each
/// direction. B bytes that move beside work of t seconds make it max(t, B / W) + 0.1 min.
///
/// - S bytes of masters and moments pass through the device once per step, coming and going at once. Buffers 2 S: what
///   is updated and what comes next, in the place of what has left. So does Megatron-LM's --offload-optimizer-states;
///   ZeRO-Offload (Ren et al. 2021) updates on the host instead.
/// - K bytes that a layer keeps of a micro-batch leave beside its forward and come back beside its backward with what
///   that repeats; where the schedule splits weight gradients off, once more beside those. Buffers 4 K: what is
///   computed and what is in transfer, in each direction. Embedding and head, not `isLayer`, keep theirs: they run
///   right before or behind their backward, or keep little.
/// - P bytes of parameters, a rank's share, come before each gather of ZeRO 3, beside forward and beside backward. G
///   bytes of gradients leave as they are reduced, beside backward or weight gradients apart, and are added up on the
///   host. Once per step max(P, G) pass with S. Buffers 2 (P + G), what is whole and what is in transfer, or P + G of
///   embedding and head. So do DeepSpeed's offload_param and FSDP's CPUOffloadPolicy.
void addOffload(SegmentCost &cost, const Machine &machine, const ParallelConfig &config, bool isLayer);

} // namespace espalier::planner
