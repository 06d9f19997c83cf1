// Time formulas, one function each, and their sum over the terms of one segment.
// Notation: B bytes, W bytes per second, n ranks of a group, r of them on one host, F operations
// per second.
#pragma once

#include "planner/problem.h"

#include <array>
#include <vector>

namespace espalier::planner {

/// Values of all symbols under a plan: pp, dp, cp, ep, tp, batch, then the dimensions.
std::vector<double> symbolValues(const Problem &problem, const Plan &plan);

/// The size in its unit (elements, bytes, operations).
double evaluate(const Size &size, const std::vector<double> &symbols);

/// Share of the peak that is left when tiles do not fill the matrix and waves of tiles do not fill
/// the multiprocessors: m n k over the work of the best tile shape, rounded up. 1 when
/// multiprocessors is 0. Source: NVIDIA, "Matrix Multiplication Background User's Guide", tile and
/// wave quantization.
double tileEfficiency(double m, double n, double count, int multiprocessors);

/// Share of the peak for operands whose contiguous dimension divides by 2^i elements of two bytes: full from 64
/// elements (128 bytes), 0.8 at 8 (16 bytes, the widest load), by NVIDIA's guide, section on tensor cores; what lies
/// between is coarse and the same for all GPUs. Below 8:
/// - one product uses tensor cores all the same (since cuBLAS 11, same guide) with narrower loads. The share falls with
///   the cube root of their width to 0.4 for an odd size, by which a step of GPT-2 124M on A100 takes 1.24 x as long
///   with a vocabulary of 50,257 as with 50,304; nanoGPT measured 1.25.
/// - of `count` products each begins where the one before ends, off 16 bytes: no tensor cores, a sixteenth (19.5 of 312
///   TFLOP/s on A100). So the BLOOM sweep: attention with heads of 108 or 150 takes 1.2 to 1.4 x the whole step of 104,
///   112 or 144.
double alignmentEfficiency(double m, double n, double k, double count);

/// max(2 m n k count / F_effective, B / W) + launch.
double matmulSeconds(double m, double n, double k, double count, double bytes, const Machine &machine);

/// Fused attention: operations at the attention efficiency, or its bytes, whichever is longer, +
/// launch.
double attentionSeconds(double operations, double bytes, const Machine &machine);

/// B / W + launch.
double memorySeconds(double bytes, const Machine &machine);

/// Ranks of one group along an axis and where they stand.
struct Group {
  int ranks = 1;
  int perHost = 1;                                          ///< r: members on one host
  double bytesPerSecond = 0;                                ///< of the slowest link of the ring, after sharing
  double hopSeconds = 0;                                    ///< mean latency of one ring step
  double linkBytesPerSecond = 0, networkBytesPerSecond = 0; ///< of one member: inside a host, and between hosts
};

/// The group of an axis under the mesh order pp, dp, cp, ep, tp. A ring over several hosts uses the
/// network share of its r members on each host: min(link, r * network), because all groups of a
/// host use it at once. dp groups include cp (gradients are summed over both) and, `overExperts`, ep.
Group groupOf(Axis axis, const Plan &plan, const Machine &machine, bool overExperts = false);

/// Ring collectives. B is the whole buffer: all-gather and reduce-scatter (n-1)/n B / W + (n-1)
/// hops, all-reduce twice that, send B / W + hop. All-to-all: B / n to each other member, those on the
/// host over links and beside them the others over each member's own share of the network, + (n-1) hops.
/// Source: Thakur, Rabenseifner, Gropp 2005.
double collectiveSeconds(CollectiveKind kind, double bytes, double calls, const Group &group);

/// Compute beside communication: both slow each other by a tenth of the shorter one. A program of several of both takes
/// its length L without that, and a tenth of what runs at the same time: 0.9 L + 0.1 (compute + communication).
double overlappedSeconds(double computeSeconds, double communicationSeconds);

/// Time of one micro-batch (or step) of one layer, on one rank. All communication in it is exposed
/// time.
struct PhaseSeconds {
  double compute = 0;
  std::array<double, kAxes> communication{}; ///< indexed by Axis
  double hostTransfer = 0;                   ///< to or from host memory, beyond what runs beside the rest
  double total() const;
};

/// What one segment costs under a plan; arrays over Recompute.
struct SegmentCost {
  PhaseSeconds forward, backward, weight, step;
  std::array<PhaseSeconds, 3> recompute;                            ///< extra time before backward
  std::array<double, 3> forwardTransfer{}, weightTransfer{};        ///< extra time where something is offloaded
  double parameterBytes = 0, gradientBytes = 0, optimizerBytes = 0; ///< after ZeRO
  double elements = 0;                                              ///< parameters on this rank before ZeRO
  std::array<double, 3> savedBytes{}, forwardPeakBytes{}, backwardPeakBytes{};
  double tiedParameterBytes = 0, tiedGradientBytes = 0,
         tiedOptimizerBytes = 0;            ///< part of the above
  std::array<double, kAxes> hideableStep{}; ///< once per step, beside the last backward
  std::array<double, 3> workspaceBytes{};
  double stepBytes = 0;     ///< held only while the step runs
  double stepPeakBytes = 0; ///< the largest one
  double gatheredBytes = 0; ///< ZeRO-3: parameters of the layer while it runs
  /// Device buffers that offloaded state, parameters and kept values go through; 0 where nothing is offloaded.
  double optimizerBufferBytes = 0, parameterBufferBytes = 0;
  std::array<double, 3> savedBufferBytes{};
  bool keepsOptimizerOnDevice() const { return optimizerBufferBytes <= 0; }
  bool keepsParametersOnDevice() const { return parameterBufferBytes <= 0; }
  bool keepsSavedOnDevice(int recompute) const { return savedBufferBytes[recompute] <= 0; }
};

/// Whether a set of terms holds for a plan.
bool matches(const Pattern &pattern, const Plan &plan);

/// Puts terms in the order of their programs, as segmentCost reads them; those at one position keep theirs.
void orderTerms(PatternTerms &terms);

/// Sums the terms of the first pattern that matches; a kind without a match costs nothing and
/// `found` is set to false.
SegmentCost segmentCost(const Problem &problem, int kind, const Plan &plan, bool *found = nullptr);

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
void addOffload(SegmentCost &cost, const Machine &machine, const Plan &plan, bool isLayer);

/// Seconds of one transfer of the stream between two stages.
double boundarySeconds(const Problem &problem, const Plan &plan);

/// Seconds to sum the gradient of tied embeddings between the first and last stage; 0 when they are
/// one.
double tiedEmbeddingSeconds(const Problem &problem, const Plan &plan);

} // namespace espalier::planner
