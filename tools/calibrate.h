// What the machine at hand does, measured while all ranks work at once, and a cluster file made of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

/// Constants of one rank (a thread) of this machine. Rates are per second.
struct MeasuredMachine {
  std::string processor; ///< as the system names it
  int ranks = 1;
  double memoryBytes = 0;                                ///< a rank's share of the physical memory
  double f32Flops = 0, bf16Flops = 0, f16Flops = 0;      ///< of the fastest matrix product
  double matmulEfficiency = 0;                           ///< rate of a large f32 product over the fastest one
  double attentionEfficiency = 0;                        ///< the same of f32 attention, forward and backward
  double memoryBytesPerSecond = 0;                       ///< read plus written
  double launchSeconds = 0;                              ///< of the smallest library call
  double linkBytesPerSecond = 0, linkLatencySeconds = 0; ///< of a ring; 0 with one rank
  /// Keys of the cluster file whose figures differ by more than a tenth between rounds, with the largest over the
  /// least, minus 1: something else runs on the machine.
  std::vector<std::pair<std::string, double>> spreads;
};

/// Memory that the largest measurement with `ranks` threads takes.
uint64_t calibrationBytes(int ranks);

/// What one round measures. Rates of products and copies; seconds of small calls.
struct CalibrationRound {
  double fastest = 0, large = 0, bf16 = 0, f16 = 0, attention = 0, copy = 0, link = 0;
  double launch = 0, hop = 0;
};

inline constexpr int calibrationRounds = 3;
inline constexpr double noticedSpread = 0.1;

/// Measures with `ranks` threads, each product and collective over at least `seconds`, in several rounds. Values are
/// those of the fastest call of the median rank in the best round. `say` hears of each measurement before it begins.
MeasuredMachine measureMachine(int ranks, double seconds, const std::function<void(const std::string &)> &say);

/// Takes the best of each figure into a machine, and the figures that cannot be repeated into its spreads.
void keepBest(const std::vector<CalibrationRound> &rounds, MeasuredMachine &machine);

/// "memory_bandwidth 34 %, link.latency 12 %"; empty where all figures can be repeated.
std::string describeSpreads(const MeasuredMachine &machine);

/// A file of configs/clusters: fixed keys in a fixed order, numbers with three digits, each with what was measured.
std::string clusterYaml(const std::string &name, const MeasuredMachine &machine);

} // namespace espalier
