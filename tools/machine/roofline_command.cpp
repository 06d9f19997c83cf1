// `espalier bench roofline`: prints lower bounds of kernel times and the resulting tokens/s.
#include "tools/commands.h"
#include "tools/roofline/roofline.h"

#include "compiler/import/run/cluster_file.h"

#include "format/plan_file.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"

#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using nlohmann::ordered_json;

struct RooflineArguments {
  std::string plan, cluster = "h200";
  bool json = false;
};

/// Each of the 128 lanes of a multiprocessor executes one multiply-add per cycle. The lanes therefore start half the
/// f32 peak in instructions per second.
std::optional<DeviceRates> ratesOf(const std::string &name, Diagnostics &diagnostics) {
  std::optional<ClusterConfig> half = readClusterFile(name, DType::BF16, diagnostics);
  std::optional<ClusterConfig> whole = readClusterFile(name, DType::F32, diagnostics);
  if (!half || !whole || diagnostics.hasErrors())
    return std::nullopt;
  double attention = half->attentionEfficiency > 0 ? half->attentionEfficiency : half->matmulEfficiency;
  return DeviceRates{.f32Products = whole->peakFlops * whole->matmulEfficiency,
                     .halfProducts = half->peakFlops * half->matmulEfficiency,
                     .matrixFlops = half->peakFlops * attention,
                     .memoryBytes = half->memoryBytesPerSecond,
                     .laneInstructions = whole->peakFlops / 2,
                     .multiprocessors = std::max(half->multiprocessors, 1),
                     .launchSeconds = half->launchSeconds};
}

ordered_json describe(const Roofline &roofline, const RooflineArguments &arguments) {
  ordered_json rows = ordered_json::array();
  for (const RooflineRow &row : roofline.rows)
    rows.push_back({{"name", row.name},
                    {"place", row.place},
                    {"launches", row.launches},
                    {"bytes", row.bytes},
                    {"accessed_bytes", row.accessed},
                    {"instructions", row.instructions},
                    {"flops", row.flops},
                    {"seconds", row.seconds},
                    {"limit", row.limit}});
  return {{"plan", arguments.plan},
          {"cluster", arguments.cluster},
          {"estimated", true},
          {"stage", roofline.stage},
          {"step_seconds", roofline.stepSeconds},
          {"tokens_per_second", roofline.tokensPerSecond},
          {"transfers_counted", !roofline.hasTransfers},
          {"rows", rows}};
}

void print(const Roofline &roofline, const RooflineArguments &arguments) {
  fmt::print("{:>5}  {:>9}  {:>8}  {:>9}  {:>9}  {:>8}  {:<17}  {}\n", "share", "step ms", "launches", "us each",
             "GB/s", "TFLOP/s", "limit", "kernel or product");
  for (const RooflineRow &row : roofline.rows) {
    double all = static_cast<double>(row.launches) * row.seconds;
    fmt::print("{:>4.1f}%  {:>9.3f}  {:>8}  {:>9.1f}  {:>9.0f}  {:>8.1f}  {:<17}  {}{}{}\n",
               100 * all / roofline.stepSeconds, 1e3 * all, row.launches, 1e6 * row.seconds,
               row.bytes / row.seconds / 1e9, row.flops / row.seconds / 1e12, row.limit, row.name,
               row.place.empty() ? "" : "  ", row.place);
  }
  fmt::print("estimated on one device of {}: {:.3f} ms a step{}, {:.0f} tokens/s\n", arguments.cluster,
             1e3 * roofline.stepSeconds,
             roofline.hasTransfers ? fmt::format(" of stage {}, transfers not counted", roofline.stage) : "",
             roofline.tokensPerSecond);
}

int benchRoofline(const RooflineArguments &arguments) {
  rt::pb::Plan plan = rt::readPlan(arguments.plan);
  if (std::vector<std::string> errors = rt::verifyPlan(plan); !errors.empty())
    throw rt::PlanError(fmt::format("{}: {}", arguments.plan, errors.front()));
  Diagnostics diagnostics;
  std::optional<DeviceRates> rates = ratesOf(arguments.cluster, diagnostics);
  fmt::print(stderr, "{}", diagnostics.render());
  if (!rates)
    return UserError;
  Roofline roofline = makeRoofline(plan, *rates);
  if (arguments.json)
    fmt::print("{}\n", describe(roofline, arguments).dump(2));
  else
    print(roofline, arguments);
  return Success;
}

} // namespace

void addRooflineCommand(const Verb &bench) {
  Verb roofline = bench.verb("roofline", "What the kernels of a plan for cuda take at least (estimated)");
  auto arguments = std::make_shared<RooflineArguments>();
  roofline.option("plan", arguments->plan, "a plan compiled with --target cuda").required();
  roofline.option("--cluster", arguments->cluster, "rates of the device: a name or file of configs/clusters");
  roofline.flag("--json", arguments->json, "one object");
  roofline.action([arguments] { return benchRoofline(*arguments); });
}

} // namespace espalier
