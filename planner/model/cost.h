// Time formulas, one function each.
// Notation: B bytes, W bytes per second, n ranks of a group, r of them on one host, F operations
// per second.
#pragma once

#include "planner/problem.h"

#include <array>
#include <vector>

namespace espalier::planner {

/// Values of all symbols under a plan: pp, dp, cp, ep, tp, batch, then the dimensions.
std::vector<double> symbolValues(const Problem &problem, const ParallelConfig &config);

/// The size in its unit (elements, bytes, operations).
double evaluate(const Size &size, const std::vector<double> &symbols);

/// Share of the peak that is left when tiles do not fill the matrix and waves of tiles do not fill
/// the multiprocessors: m n k over the work of the best tile shape, rounded up. 1 when
/// multiprocessors is 0. Source: NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave
/// quantization. Example: 4096 x 4096 are 512 tiles of 256 x 128, on 108 multiprocessors 5 waves: 512 / 540 = 0.95.
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

/// max(2 m n k count / F_effective, B / W) + launch. Example: 8192^3 at 312 TFLOP/s, of which 0.75 are reached: 4.7 ms.
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
/// network share of its r members on each host: min(link, r * network / (1 + slope * log2(hosts))), because all groups
/// of a host use it at once; `slope` is Machine::ringSlope. dp groups include cp (gradients are summed over both) and,
/// `overExperts`, ep. Example: 16 ranks on two hosts, links of 230 GB/s, a network of 22 GB/s and no slope:
/// min(230, 8 * 22) = 176 GB/s.
Group groupOf(Axis axis, const ParallelConfig &config, const Machine &machine, bool overExperts = false);

/// Ring collectives. B is the whole buffer: all-gather and reduce-scatter (n-1)/n B / W + (n-1)
/// hops, all-reduce twice that, send B / W + hop. All-to-all: B / n to each other member, those on the
/// host over links and beside them the others over each member's own share of the network, + (n-1) hops.
/// Source: Thakur, Rabenseifner, Gropp 2005. Example: all-reduce of 1 GB over 8 ranks at 230 GB/s: 2 * 7/8 / 230 =
/// 7.6 ms.
double collectiveSeconds(CollectiveKind kind, double bytes, double calls, const Group &group);

/// Share of the time side by side that compute and transfers take from each other.
inline constexpr double kCompetition = 0.1;

/// Compute beside communication: both slow each other by a tenth of the shorter one. A program of several of both takes
/// its length L without that, and a tenth of what runs at the same time: 0.9 L + 0.1 (compute + communication).
/// Example: 3 s beside 2 s take 3.2 s.
double overlappedSeconds(double computeSeconds, double communicationSeconds);

/// Seconds of one transfer of the stream between two stages.
double boundarySeconds(const Problem &problem, const ParallelConfig &config);

/// Seconds to sum the gradient of tied embeddings between the first and last stage; 0 when they are
/// one.
double tiedEmbeddingSeconds(const Problem &problem, const ParallelConfig &config);

} // namespace espalier::planner
