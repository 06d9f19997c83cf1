#include "tools/drift.h"

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
                        const HostLoad &load) {
  if (drift > 0 && plan.target() == "cpu" && load.ranks > load.cores)
    return fmt::format("{} share {}, and the cluster file counts a device for each rank",
                       rt::counted(load.ranks, "rank"), rt::counted(load.cores, "core"));
  double slow = seconds[seconds.size() * 9 / 10];
  if (drift > 0 && slow > busySpread * seconds[seconds.size() / 2])
    return fmt::format("steps vary, the slowest tenth takes {:.4g} s or more: the machine has other work", slow);
  return "the cluster file does not describe this machine; `espalier calibrate -o mine.yaml` measures it, and "
         "--cluster mine.yaml plans for it";
}

} // namespace

double medianSeconds(const std::vector<rt::StepRecord> &steps) {
  std::vector<double> seconds = sortedSeconds(steps);
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

std::string driftLine(const rt::pb::Plan &plan, const rt::RunResult &result, const HostLoad &load) {
  constexpr size_t fewestSteps = 3;
  double predicted = plan.predicted_step_seconds();
  if (predicted <= 0 || result.steps.size() < fewestSteps)
    return "";
  std::vector<double> seconds = sortedSeconds(result.steps);
  double measured = seconds[seconds.size() / 2], drift = measured / predicted - 1;
  uint64_t planned = 0;
  for (const rt::pb::Stage &stage : plan.stages())
    planned = std::max<uint64_t>(planned, stage.arena_bytes(rt::pb::DEVICE));
  auto used = static_cast<double>(result.steps.back().peakBytes), arena = static_cast<double>(planned);
  double memoryDrift = arena > 0 ? used / arena - 1 : 0;
  std::string line =
      fmt::format("predicted {:.4g} s a step, measured {:.4g} s ({:+.0f} %); memory {} planned, {} used ({:+.0f} %)",
                  predicted, measured, 100 * drift, bytesText(arena), bytesText(used), 100 * memoryDrift);
  if (std::abs(drift) > namedDrift)
    line += "; likely cause: " + likelyCause(plan, seconds, drift, load);
  if (memoryDrift > namedDrift) // what is used contains the plan's arena, so that it cannot be less
    line += fmt::format("; {} of memory are workspace of library calls and host buffers, which grow less than a model",
                        bytesText(used - arena));
  return line;
}

} // namespace espalier
