// Measures this machine while all ranks work at once, and writes a cluster file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

/// Measured constants of one rank (a thread) of this machine. Rates are per second.
struct MeasuredMachine {
  std::string command = "espalier calibrate";                  ///< that measured
  std::string processor;                                       ///< rt::machineName()
  int hosts = 1, ranks = 1;                                    ///< ranks: per host
  int cores = 0;                                               ///< of a host, if its ranks are threads that share them
  double memoryBytes = 0;                                      ///< a rank's share of the physical memory
  double f32Flops = 0, bf16Flops = 0, f16Flops = 0;            ///< of the fastest matrix product
  double matmulEfficiency = 0;                                 ///< rate of a layer's f32 products over the fastest one
  double attentionEfficiency = 0;                              ///< same for f32 attention, forward and backward
  double memoryBytesPerSecond = 0;                             ///< read plus written
  double launchSeconds = 0;                                    ///< of the smallest library call
  double linkBytesPerSecond = 0, linkLatencySeconds = 0;       ///< of a ring; 0 with one rank
  double networkBytesPerSecond = 0, networkLatencySeconds = 0; ///< between hosts; 0 with one host
  /// Cluster-file keys whose figures differ by more than a tenth between rounds, with max / min - 1. A spread means
  /// that other programs load the machine.
  std::vector<std::pair<std::string, double>> spreads;
};

/// Returns the memory of the largest measurement with `ranks` threads.
uint64_t calibrationBytes(int ranks);

/// The figures of one round: rates of products and copies, seconds of small calls.
struct CalibrationRound {
  double fastest = 0, large = 0, bf16 = 0, f16 = 0, attention = 0, copy = 0, link = 0;
  double launch = 0, hop = 0;
};

/// Number of rounds of a calibration.
inline constexpr int calibrationRounds = 3;
/// Relative spread above which a figure is reported as not repeatable.
inline constexpr double noticedSpread = 0.1;

/// Measures with `ranks` threads in several rounds. If these share the machine's cores, work is measured with a thread
/// for each core, and links with all threads: the planner lets ranks of one core take turns. Each product and
/// collective runs for at least `seconds`. A value is the median call of the median rank in the best round. Calls
/// `say` before each measurement.
MeasuredMachine measureMachine(int ranks, double seconds, const std::function<void(const std::string &)> &say);

/// Sets each constant of the machine to its best round, and `spreads` to the figures that are not repeatable.
void keepBest(const std::vector<CalibrationRound> &rounds, MeasuredMachine &machine);

/// Formats the spreads: "memory_bandwidth 34 %, link.latency 12 %". Empty if all figures are repeatable.
std::string describeSpreads(const MeasuredMachine &machine);

/// Returns a name for the cluster of a file: the letters, digits, - and _ of its stem, which YAML accepts without
/// quotes.
std::string clusterNameOf(const std::string &file);

/// Returns a file for configs/clusters: fixed keys in a fixed order, three digits each, with a comment on each
/// measurement.
std::string clusterYaml(const std::string &name, const MeasuredMachine &machine);

} // namespace espalier
