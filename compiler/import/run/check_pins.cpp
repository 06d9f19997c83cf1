// The planner states the constraints on plans (planner/check.h). This file maps its findings to keys of the run file,
// and adds the rules of the file's own keys. A way out names the key and the change: `model_parallel: 8 → 5 or 10`.
#include "compiler/import/run/check_pins.h"

#include "compiler/import/run/split_limits.h"
#include "planner/check.h"

#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>
#include <map>

namespace espalier {

namespace {

/// A limit far above every training run.
constexpr int64_t mostSamples = 10000000;

class PinChecker {
public:
  explicit PinChecker(const RunReader &reader) : reader(reader), pins(reader.config().pins), config(reader.config()) {
    if (!config.model.splitsSequence() && !pins.cp)
      pins.cp = 1;
    if (!config.model.hasExperts()) // the file may ask for an ep axis, which a dense model has not
      pins.ep = std::max<int>(pins.ep.value_or(1),
                              static_cast<int>(std::clamp<int64_t>(
                                  reader.integer("parallel_config.expert_parallel").value_or(1), 1, 1000000000)));
    if (config.isPinned)
      pins.virtualStages = pins.virtualStages.value_or(1);
    divisibility = splitLimits(config.model);
  }

  void run() {
    for (const planner::Finding &finding : planner::check(pins, limits()))
      report(finding);
    planner::completePins(pins, limits());
    checkMicroBatches();
    checkSizes();
    checkRecomputeLists();
  }

private:
  planner::PlanLimits limits() const {
    return {.cluster = config.cluster.name,
            // An unreadable cluster has been reported.
            .devices = config.cluster.name.empty() ? 0 : config.cluster.devices(),
            .hasHostLink = config.cluster.name.empty() || config.cluster.host.bytesPerSecond > 0,
            .layers = config.model.layerCount(),
            // The batch of a pinned file is the product of the pins.
            .globalBatch = config.isPinned ? 0 : config.globalBatch,
            .divisibility = divisibility,
            .knowsModel = std::ranges::count(divisibility, "seq", &planner::Divisibility::name) > 0};
  }

  void report(const planner::Finding &finding) const {
    std::string path = pathOf(finding.field);
    // data_parallel counts the replicas of the ep axis, planner.pin.dp does not.
    int64_t factor = path == "parallel_config.data_parallel" && config.model.hasExperts() ? pins.ep.value_or(1) : 1;
    std::string wayOut = finding.wayOut(factor);
    std::string key = finding.field == "global_batch" ? "planner.global_batch" : last(path);
    reader.error(path, finding.reason + (wayOut.empty() ? "" : fmt::format("; {}: {}", key, wayOut)));
  }

  /// Returns the key of a finding's field.
  std::string pathOf(const std::string &field) const {
    static const std::map<std::string, std::string> fileKeys = {{"dp", "data_parallel"},
                                                                {"tp", "model_parallel"},
                                                                {"pp", "pipeline_stage"},
                                                                {"cp", "context_parallel"},
                                                                {"ep", "expert_parallel"}};
    if (auto found = fileKeys.find(field); found != fileKeys.end())
      return axisKey(field, found->second);
    auto firstGiven = [&](std::initializer_list<const char *> paths, const char *otherwise) {
      auto found = std::ranges::find_if(paths, [&](const char *path) { return reader.has(path); });
      return std::string(found == paths.end() ? otherwise : *found);
    };
    if (field == "seq_length")
      return "model.model_config.seq_length";
    if (field == "global_batch")
      return firstGiven({"planner.pin.dp", "planner.pin.ep", "planner.pin.micro_batch_size",
                         "planner.pin.micro_batches", "planner.global_batch"},
                        axisKey("dp", "data_parallel").c_str());
    if (field == "stage_layers")
      return firstGiven({"planner.pin.stage_layers"}, "model.model_config.offset");
    if (field == "schedule" || field == "virtual_stages")
      return firstGiven({"planner.pin.virtual_stages", "planner.pin.schedule"}, "parallel.pipeline_config");
    if (field == "offload_activations")
      return firstGiven({"planner.pin.offload_activations"}, "swap_config.swap");
    return "planner.pin." + field;
  }

  /// Returns the key that fixed an axis: planner.pin overrides parallel_config. If the axis was derived from other
  /// pins, returns one of those.
  std::string axisKey(const std::string &pin, const std::string &fileKey) const {
    std::string own = "planner.pin." + pin, file = "parallel_config." + fileKey;
    if (reader.has(own) || (config.isPinned && reader.has(file)))
      return reader.has(own) ? own : file;
    for (const char *other : {"dp", "tp", "pp", "ep", "cp", "micro_batch_size", "micro_batches"})
      if (std::string cause = std::string("planner.pin.") + other; reader.has(cause))
        return cause;
    return file;
  }
  static std::string last(const std::string &path) { return path.substr(path.rfind('.') + 1); }

  /// MindFormers' rule for its own keys. The planner also accepts fewer micro-batches if the schedule allows them.
  /// Generation has none.
  void checkMicroBatches() const {
    int64_t pp = pins.pp.value_or(1);
    const char *batches = "parallel_config.micro_batch_num";
    if (pp > 1 && config.isPinned && config.runMode != "predict" && !reader.has("planner.pin.micro_batches") &&
        *pins.microBatches < pp)
      reader.error(batches, fmt::format("{} micro-batches cannot fill {} pipeline stages; {}: {} → {}",
                                        *pins.microBatches, pp, last(batches), *pins.microBatches, pp));
  }

  void checkSizes() const {
    if (pins.microBatches.value_or(1) > planner::kMostMicroBatches)
      reader.error(axisKey("micro_batches", "micro_batch_num"),
                   fmt::format("{} micro-batches, a step has at most {} on each replica", *pins.microBatches,
                               planner::kMostMicroBatches));
    else if (config.globalBatch > mostSamples)
      reader.error(reader.has("planner.global_batch") ? "planner.global_batch" : "runner_config.batch_size",
                   fmt::format("the global batch is above {} samples", mostSamples));
  }

  void checkRecomputeLists() const {
    int64_t stages = pins.pp.value_or(1);
    int chunks = pins.virtualStages.value_or(1);
    for (const std::vector<int> *layers : {&config.recompute.fullLayers, &config.recompute.selectiveLayers})
      if (int64_t lists = static_cast<int64_t>(layers->size()) / stages; lists > 1 && lists != chunks)
        reader.error("recompute_config", fmt::format("{} lists of layers for {} chunk{} of a stage; say one list for "
                                                     "all of a stage, or one for each of its chunks",
                                                     lists, chunks, chunks == 1 ? "" : "s"));
  }

  const RunReader &reader;
  planner::Pins pins; ///< including derived pins
  const RunConfig &config;
  std::vector<planner::Divisibility> divisibility;
};

} // namespace

void checkPins(const RunReader &reader) { PinChecker(reader).run(); }

} // namespace espalier
