// Time formulas, one function each. Notation: B bytes, W bytes per second, n ranks of a group, r of them on one host,
// F operations per second.
#pragma once

#include "planner/problem.h"

#include <array>
#include <limits>
#include <vector>

namespace espalier::planner {

/// A time or a size without a limit.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns the values of all symbols under a plan: pp, dp, cp, ep, tp, batch, then the dimensions.
std::vector<double> symbolValues(const Problem &problem, const ParallelConfig &config);

/// Evaluates the size in its unit (elements, bytes or operations).
double evaluate(const Size &size, const std::vector<double> &symbols);

/// Returns the share of the peak that remains when tiles do not fill the matrix and waves of tiles do not fill the
/// multiprocessors. The share is m n k over the rounded-up work of the best tile shape, or 1 when `multiprocessors` is
/// 0. Source: NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantization. Example: 4096 x
/// 4096 has 512 tiles of 256 x 128. On 108 multiprocessors they take 5 waves: 512 / 540 = 0.95.
double tileEfficiency(double m, double n, double count, int multiprocessors);

/// Returns the share of the peak for operands whose contiguous dimension divides by 2^i elements of two bytes. The
/// share is 1 from 64 elements (128 bytes) and 0.8 at 8 elements (16 bytes, the widest load). Source: NVIDIA's guide,
/// section on tensor cores. Values in between are coarse and the same for all GPUs. Below 8 elements:
/// - A single product still uses tensor cores (cuBLAS 11 and later, same guide), but with narrower loads. The share
///   falls with the cube root of the load width to 0.4 for an odd size. By this rule a step of GPT-2 124M on A100 takes
///   1.24 x as long with a vocabulary of 50,257 as with 50,304. nanoGPT measured 1.25.
/// - In a batch of `count` products each product starts at the end of the previous one, off the 16-byte alignment. It
///   does not use tensor cores: a sixteenth of the peak (19.5 of 312 TFLOP/s on A100). The BLOOM sweep agrees: with
///   heads of 108 or 150 attention takes 1.2 to 1.4 x the whole step with heads of 104, 112 or 144.
double alignmentEfficiency(double m, double n, double k, double count);

/// Returns max(2 m n k count / F_effective, B / W) + launch. Example: 8192^3 at 312 TFLOP/s and efficiency 0.75: 4.7
/// ms.
double matmulSeconds(double m, double n, double k, double count, double bytes, const Machine &machine);

/// Fused attention: the longer of operations / F at the attention efficiency and B / W, plus launch.
double attentionSeconds(double operations, double bytes, const Machine &machine);

/// Element-wise kernels and reductions: B / W + launch.
double memorySeconds(double bytes, const Machine &machine);

/// The ranks of one group along an axis, and the links between them.
struct Group {
  int ranks = 1;
  int perHost = 1;                                          ///< r: members on one host
  double bytesPerSecond = 0;                                ///< of the slowest link of the ring, after sharing
  double hopSeconds = 0;                                    ///< mean latency of one ring step
  double linkBytesPerSecond = 0, networkBytesPerSecond = 0; ///< of one member: inside a host, and between hosts
  double copiesShare = 1; ///< of the bytes that tokens send to other hosts, if each host receives a token once
};

/// The data-parallel ranks of a group: all of them, those of one shard group of ZeRO, or the ranks with one shard.
enum class DataRanks { All, Shards, Replicas };

/// Returns the group of an axis under the mesh order pp, dp, cp, ep, tp. A ring over several hosts uses the network
/// shares of its r members on each host: min(link, r * network / (1 + slope * log2(hosts))). All groups of a host use
/// the network at once. `slope` is Machine::ringSlope. dp groups include cp, because gradients are summed over both.
/// With `overExperts` they also include ep, and `withoutContext` they leave out cp. Example: 16 ranks on two hosts,
/// links of 230 GB/s, a network of 22 GB/s, no slope: min(230, 8 * 22) = 176 GB/s. `dataRanks` selects a part of a dp
/// group; replicas lie outside the context and expert ranks of a shard group.
Group groupOf(Axis axis, const ParallelConfig &config, const Machine &machine, bool overExperts = false,
              DataRanks dataRanks = DataRanks::All, bool withoutContext = false);

/// Returns the group of a collective. Gathers and reduce-scatters over dp run in one shard group of ZeRO.
Group groupOf(const CollectiveTerm &term, const ParallelConfig &config, const Machine &machine);

/// Returns whether a collective sends tokens to their experts or back, over ep or cp.
bool movesTokens(const CollectiveTerm &term);

/// The same, with the copies of tokens that the software's dispatcher sends.
Group groupOf(const CollectiveTerm &term, const ParallelConfig &config, const Problem &problem);

/// Seconds of a ring collective over a whole buffer of B bytes. All-gather and reduce-scatter: (n-1)/n B / W + (n-1)
/// hops. All-reduce: twice that. Send: B / W + hop. All-to-all: B / n to each other member, + (n-1) hops. Members on
/// the same host use the links; concurrently the others use each member's share of the network. Source: Thakur,
/// Rabenseifner, Gropp 2005. Example: all-reduce of 1 GB over 8 ranks at 230 GB/s: 2 * 7/8 / 230 = 7.6 ms.
double collectiveSeconds(CollectiveKind kind, double bytes, double calls, const Group &group);

/// Seconds to sum the shards that a reduce-scatter of `bytes` over dp leaves, over the shard groups of ZeRO; 0 for
/// other collectives, and if there is one group.
double replicaSumSeconds(const CollectiveTerm &term, double bytes, const ParallelConfig &config,
                         const Machine &machine);

/// The slowdown of overlapped compute and transfers, as a share of the overlapped time.
inline constexpr double kCompetition = 0.1;

/// Seconds of compute that overlaps with communication: the longer one, plus a tenth of the shorter one. A program
/// with several of both has a length L without this slowdown, and takes 0.9 L + 0.1 (compute + communication).
/// Example: 3 s beside 2 s take 3.2 s.
double overlappedSeconds(double computeSeconds, double communicationSeconds);

/// Seconds to send the activation of one micro-batch from one stage to the next.
double boundarySeconds(const Problem &problem, const ParallelConfig &config);

/// Seconds to sum the gradients of tied embeddings over the first and the last stage; 0 when they are the same stage.
double tiedEmbeddingSeconds(const Problem &problem, const ParallelConfig &config);

} // namespace espalier::planner
