#include "tools/report/drift.h"

#include "format/host_machine.h"
#include "messages/counted.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace espalier {
namespace {

constexpr double namedDrift = 0.15;
constexpr double busySpread = 1.4; ///< ratio of a slow step to the median on a machine with other work

/// Returns the step times without the first one, ascending.
std::vector<double> sortedSeconds(const std::vector<rt::StepRecord> &steps) {
  std::vector<double> seconds;
  for (size_t i = steps.size() > 1; i < steps.size(); ++i)
    seconds.push_back(steps[i].seconds);
  std::ranges::sort(seconds);
  return seconds;
}

std::string bytesText(double bytes) {
  return bytes < 100 * 0x1p20 ? fmt::format("{:.2f} MB", bytes / 0x1p20) : fmt::format("{:.2f} GB", bytes / 0x1p30);
}

std::string likelyCause(const rt::pb::Plan &plan, const std::vector<double> &seconds, double drift,
                        const RunSite &site) {
  if (drift > 0 && plan.target() == "cpu" && site.ranks > site.cores)
    return fmt::format("{} share {}, and the cluster file counts a device for each rank",
                       rt::counted(site.ranks, "rank"), rt::counted(site.cores, "core"));
  double slow = seconds[seconds.size() * 9 / 10];
  if (drift > 0 && slow > busySpread * seconds[seconds.size() / 2])
    return fmt::format("steps vary, the slowest tenth takes {:.4g} s or more: the machine has other work", slow);
  return "this machine has other rates than when it was calibrated; `espalier calibrate` measures them again";
}

} // namespace

double medianSeconds(const std::vector<rt::StepRecord> &steps) {
  std::vector<double> seconds = sortedSeconds(steps);
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

RunSite siteOf(const rt::Program &program, const rt::RunOptions &options) {
  const rt::pb::Plan &plan = program.plan();
  int hostRanks = options.hostRanks(program.mesh().ranks());
  RunSite site{hostRanks, rt::machineCores()};
  for (const rt::pb::Input &input : plan.inputs())
    if (std::string_view name = input.name(); name.starts_with(rt::measuredRates)) {
      name.remove_prefix(rt::measuredRates.size());
      site.isCalibrated = plan.target() == "cpu" ? name == rt::machineName()
                                                 : program.backend().level().find(name) != std::string::npos;
    }
  // A step's peakBytes are the allocations of rank 0, and at least the largest arena.
  site.plannedBytes = program.backend().plannedBytes(plan.stages(0), rt::threadsPerRank(options.threads, hostRanks));
  for (const rt::pb::Stage &stage : plan.stages())
    site.plannedBytes = std::max<uint64_t>(site.plannedBytes, stage.arena_bytes(rt::pb::DEVICE));
  return site;
}

std::string driftLine(const rt::pb::Plan &plan, const rt::RunResult &result, const RunSite &site) {
  constexpr size_t fewestSteps = 3;
  double predicted = plan.predicted_step_seconds();
  if (predicted <= 0 || result.steps.size() < fewestSteps)
    return "";
  std::vector<double> seconds = sortedSeconds(result.steps);
  double measured = seconds[seconds.size() / 2], drift = measured / predicted - 1;
  auto used = static_cast<double>(result.steps.back().peakBytes), planned = static_cast<double>(site.plannedBytes);
  std::string memory = fmt::format("memory {} planned, {} used ({:+.0f} %)", bytesText(planned), bytesText(used),
                                   planned > 0 ? 100 * (used / planned - 1) : 0);
  if (!site.isCalibrated)
    return fmt::format("measured {:.4g} s a step; not calibrated: the predicted {:.4g} s are for rates that were not "
                       "measured on this machine, which `espalier calibrate` does; {}",
                       measured, predicted, memory);
  std::string line = fmt::format("predicted {:.4g} s a step, measured {:.4g} s ({:+.0f} %); {}", predicted, measured,
                                 100 * drift, memory);
  if (std::abs(drift) > namedDrift)
    line += "; likely cause: " + likelyCause(plan, seconds, drift, site);
  return line;
}

} // namespace espalier
