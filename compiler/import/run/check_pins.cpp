// One function per rule. A suggested fix names the key as in the file, and the change: `model_parallel: 8 → 5 or 10`.
#include "compiler/import/run/check_pins.h"

#include "planner/model/schedule.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

namespace espalier {

std::string nearestDivisors(int64_t number, int64_t value) {
  int64_t below = 0, above = 0;
  for (int64_t i = 1; i * i <= number; ++i)
    for (int64_t divisor : {i, number / i}) {
      if (number % i != 0)
        break;
      if (divisor < value)
        below = std::max(below, divisor);
      else if (divisor > value && (above == 0 || divisor < above))
        above = divisor;
    }
  if (below && above)
    return fmt::format("{} or {}", below, above);
  return fmt::format("{}", below ? below : above);
}

namespace {

// Limits far above every training run, because search time and output size grow with these values.
constexpr int64_t mostSamples = 10000000, mostMicroBatches = 1 << 16;

class PinChecker {
public:
  explicit PinChecker(const RunReader &reader) : reader(reader), pins(reader.config().pins), config(reader.config()) {}

  void run() {
    if (config.model.hasExperts() && !pins.cp)
      pins.cp = 1; // experts are chosen over unsharded sequences
    checkDevices();
    derive();
    checkTensorParallel();
    checkSequence();
    checkExperts();
    checkPipeline();
    checkStageLayers();
    checkBatch();
    checkZero();
    checkSchedule();
    checkOffloading();
  }

private:
  /// Returns the key that fixed an axis: planner.pin overrides parallel_config. If the axis was derived from other
  /// pins, returns one of those.
  std::string key(const char *pin, const char *fileKey) const {
    std::string own = std::string("planner.pin.") + pin, file = std::string("parallel_config.") + fileKey;
    if (reader.has(own) || (config.isPinned && reader.has(file)))
      return reader.has(own) ? own : file;
    for (const char *other : {"dp", "tp", "pp", "ep", "cp", "micro_batch_size", "micro_batches"})
      if (std::string cause = std::string("planner.pin.") + other; reader.has(cause))
        return cause;
    return file;
  }
  static std::string last(const std::string &path) { return path.substr(path.rfind('.') + 1); }
  std::optional<int64_t> dim(const std::string &name) const {
    auto found = config.model.dims.find(name);
    return found == config.model.dims.end() || found->second == 0 ? std::nullopt : std::optional(found->second);
  }

  /// Returns whether the size of the ep axis is known. Dense models have no ep axis.
  bool knowsExpertAxis() const { return pins.ep || !config.model.hasExperts(); }
  std::string timesEp() const { return pins.ep.value_or(1) > 1 ? fmt::format(" · ep {}", *pins.ep) : ""; }
  /// Returns the factor between the key and dp: data_parallel also counts the replicas of the ep axis, planner.pin.dp
  /// does not.
  int64_t partOf(const std::string &path) const {
    return path == "parallel_config.data_parallel" ? pins.ep.value_or(1) : 1;
  }

  void checkDevices() {
    if (config.cluster.name.empty()) // the cluster is unreadable, which has been reported
      return;
    int64_t devices = config.cluster.devices();
    double wanted = 1;
    for (const std::optional<int> &axis : {pins.dp, pins.tp, pins.pp, pins.cp, pins.ep})
      wanted *= axis.value_or(1);
    bool allSet = pins.dp && pins.tp && pins.pp && pins.cp && knowsExpertAxis();
    bool fits = allSet ? wanted == static_cast<double>(devices) : std::fmod(static_cast<double>(devices), wanted) == 0;
    if (fits)
      return;
    std::string path = key("dp", "data_parallel");
    double rest = wanted / pins.dp.value_or(1);
    std::string fix = "choose a cluster of that size";
    if (pins.dp && std::fmod(static_cast<double>(devices), rest) == 0)
      fix = fmt::format("{}: {} → {:.0f}", last(path), *pins.dp * partOf(path),
                        static_cast<double>(devices) / rest * partOf(path));
    reader.error(path, fmt::format("dp {} · tp {} · pp {} · cp {}{} {} {:.0f} devices, cluster {} has {}; {}",
                                   pins.dp.value_or(1), pins.tp.value_or(1), pins.pp.value_or(1), pins.cp.value_or(1),
                                   timesEp(), allSet ? "needs" : "needs a multiple of", wanted, config.cluster.name,
                                   devices, fix));
  }

  /// Derives the last free axis and the number of micro-batches if the other pins determine them.
  void derive() {
    int64_t devices = config.cluster.devices(), known = pins.ep.value_or(1);
    int open = knowsExpertAxis() ? 0 : 1;
    std::optional<int> *last = nullptr;
    for (std::optional<int> *axis : {&pins.dp, &pins.tp, &pins.pp, &pins.cp}) {
      known = std::min<int64_t>(known * axis->value_or(1), int64_t(1) << 30);
      open += !*axis;
      last = *axis ? last : axis;
    }
    if (open == 1 && last && !config.cluster.name.empty() && devices % known == 0)
      *last = static_cast<int>(devices / known);
    double share = static_cast<double>(pins.dp.value_or(1)) * pins.ep.value_or(1) *
                   static_cast<double>(pins.microBatchSize.value_or(1));
    double batch = static_cast<double>(config.globalBatch);
    if (pins.dp && knowsExpertAxis() && pins.microBatchSize && !pins.microBatches && std::fmod(batch, share) == 0)
      pins.microBatches = static_cast<int64_t>(batch / share);
  }

  void checkTensorParallel() {
    int64_t tp = pins.tp.value_or(1);
    std::string path = key("tp", "model_parallel");
    int64_t common = 0;
    std::vector<std::string> names = config.model.tensorParallelDims();
    names.push_back("hidden");
    for (const std::string &name : names)
      common = std::gcd(common, dim(name).value_or(0));
    for (const std::string &name : names)
      if (std::optional<int64_t> size = dim(name); size && *size % tp != 0)
        reader.error(path, fmt::format("{} {} is not a multiple of {} {}; {}: {} → {}: {} {}", name, *size, last(path),
                                       tp, last(path), tp, nearestDivisors(common, tp), name, *size));
  }

  void checkSequence() {
    int64_t tp = pins.sequenceParallel.value_or(false) ? pins.tp.value_or(1) : 1, cp = pins.cp.value_or(1);
    std::optional<int64_t> seq = dim("seq");
    if (pins.sequenceParallel.value_or(false) && pins.tp == 1)
      reader.error(
          "planner.pin.sequence_parallel",
          "sequence parallelism splits over tensor ranks, tp is 1; sequence_parallel: True → False, or tp above 1");
    if (std::string path = key("cp", "context_parallel"); seq && *seq % cp != 0)
      reader.error(path, fmt::format("seq {} is not a multiple of {} {}; {}: {} → {}", *seq, last(path), cp, last(path),
                                     cp, nearestDivisors(*seq, cp)));
    else if (seq && *seq % (tp * cp) != 0)
      reader.error(
          "model.model_config.seq_length",
          fmt::format("seq {} is not a multiple of {} (sequence-parallel tp {} · cp {})", *seq, tp * cp, tp, cp));
  }

  void checkExperts() {
    int64_t ep = std::max<int64_t>(pins.ep.value_or(1), reader.integer("parallel_config.expert_parallel").value_or(1));
    std::string path = key("ep", "expert_parallel");
    std::optional<int64_t> experts = dim("expert");
    if (experts && pins.cp.value_or(1) > 1)
      reader.error(key("cp", "context_parallel"), "experts are chosen over whole sequences, which cp splits: cp → 1");
    if (!pins.splitsExperts.value_or(true) && !config.model.hasExperts())
      reader.error("planner.pin.expert_tensor_parallel",
                   "expert_tensor_parallel says how experts are split, the model is dense: False → True");
    if (ep > 1 && !config.model.hasExperts())
      reader.error(path, "expert parallelism needs experts, the model is dense: ep → 1");
    else if (int64_t tp = pins.tp.value_or(1);
             experts && !pins.splitsExperts.value_or(true) && *experts % (pins.ep.value_or(1) * tp) != 0)
      reader.error(path, fmt::format("{} experts are not a multiple of tp {} · {} {}, over which they are spread",
                                     *experts, tp, last(path), pins.ep.value_or(1)));
    else if (experts && *experts % pins.ep.value_or(1) != 0)
      reader.error(path, fmt::format("{} experts are not a multiple of {} {}; {}: {} → {}", *experts, last(path),
                                     *pins.ep, last(path), *pins.ep, nearestDivisors(*experts, *pins.ep)));
  }

  void checkPipeline() {
    int64_t pp = pins.pp.value_or(1);
    int layers = config.model.layerCount(); // 0 if unknown, which has been reported
    std::string path = key("pp", "pipeline_stage");
    if (layers > 0 && pp > layers)
      reader.error(path, fmt::format("{} pipeline stages need as many layers, the model has {}; {}: {} → {}", pp,
                                     layers, last(path), pp, nearestDivisors(layers, pp)));
    // MindFormers' rule for its own keys. The planner also accepts fewer micro-batches if the schedule allows them.
    // Generation has none.
    const char *batches = "parallel_config.micro_batch_num";
    if (pp > 1 && config.isPinned && config.runMode != "predict" && !reader.has("planner.pin.micro_batches") &&
        *pins.microBatches < pp)
      reader.error(batches, fmt::format("{} micro-batches cannot fill {} pipeline stages; {}: {} → {}",
                                        *pins.microBatches, pp, last(batches), *pins.microBatches, pp));
  }

  void checkStageLayers() {
    if (!pins.stageLayers)
      return;
    std::string path =
        reader.has("planner.pin.stage_layers") ? "planner.pin.stage_layers" : "model.model_config.offset";
    int64_t size = static_cast<int64_t>(pins.stageLayers->size());
    // If stages have several chunks, the list has an entry per chunk, which may be 0. If no pin gives the number of
    // chunks of an interleaved schedule, the list's length does.
    int64_t listed = pins.pp && pins.schedule == planner::Schedule::Interleaved ? size / *pins.pp : 1;
    int64_t chunks = std::max<int64_t>(1, pins.virtualStages.value_or(listed)), pp = pins.pp.value_or(size / chunks);
    int64_t total = 0;
    int least = 1;
    for (int layers : *pins.stageLayers) {
      total += layers;
      least = std::min(least, layers);
    }
    if (size != pp * chunks)
      reader.error(path, fmt::format("{} {} have layers, the pipeline has {}", size, chunks > 1 ? "chunks" : "stages",
                                     pp * chunks));
    if (least < (chunks > 1 ? 0 : 1))
      reader.error(path, fmt::format("every {}, got [{}]",
                                     chunks > 1 ? "chunk needs 0 layers or more" : "stage needs a layer",
                                     fmt::join(*pins.stageLayers, ", ")));
    if (int layers = config.model.layerCount(); layers > 0 && total != layers)
      reader.error(path, fmt::format("stages have {} layers together, the model has {}", total, layers));
  }

  void checkBatch() {
    if (pins.microBatches.value_or(1) > mostMicroBatches)
      reader.error(
          key("micro_batches", "micro_batch_num"),
          fmt::format("{} micro-batches, a step has at most {} on each replica", *pins.microBatches, mostMicroBatches));
    else if (config.globalBatch > mostSamples)
      reader.error(reader.has("planner.global_batch") ? "planner.global_batch" : "runner_config.batch_size",
                   fmt::format("the global batch is above {} samples", mostSamples));
    if (config.isPinned) // its batch is the product of the pins and therefore agrees
      return;
    // Uses floating point so that extreme pins cannot overflow. Exact below 2^53.
    double share = static_cast<double>(pins.dp.value_or(1)) * pins.ep.value_or(1) * pins.microBatchSize.value_or(1) *
                   pins.microBatches.value_or(1);
    bool allSet = pins.dp && knowsExpertAxis() && pins.microBatchSize && pins.microBatches;
    double batch = static_cast<double>(config.globalBatch);
    if (allSet ? batch != share : std::fmod(batch, share) != 0)
      reader.error(batchPath(),
                   fmt::format("global batch {} is not {}dp {}{} · micro-batch size {} · micro-batches {}; "
                               "planner.global_batch: {} → {}",
                               config.globalBatch, allSet ? "" : "a multiple of ", pins.dp.value_or(1), timesEp(),
                               pins.microBatchSize.value_or(1), pins.microBatches.value_or(1), config.globalBatch,
                               allSet ? fmt::format("{:.0f}", share) : nearestMultiples(share, batch)));
  }

  /// Returns the pin that the global batch is not divisible by, else the batch key.
  std::string batchPath() const {
    for (const char *pin : {"dp", "ep", "micro_batch_size", "micro_batches"})
      if (std::string path = std::string("planner.pin.") + pin; reader.has(path))
        return path;
    return reader.has("planner.global_batch") ? "planner.global_batch" : key("dp", "data_parallel");
  }

  /// Returns the multiples of `number` next to `value`, such as "8 or 16".
  static std::string nearestMultiples(double number, double value) {
    double below = std::floor(value / number) * number;
    return below > 0 ? fmt::format("{:.0f} or {:.0f}", below, below + number) : fmt::format("{:.0f}", number);
  }

  void checkZero() {
    if (pins.zero.value_or(0) > 3)
      reader.error("planner.pin.zero",
                   fmt::format("there are ZeRO stages 0 to 3, got {}", *reader.integer("planner.pin.zero")));
  }

  /// Checks the schedule if all pins that it depends on are fixed.
  void checkSchedule() {
    std::string path = reader.has("planner.pin.virtual_stages") ? "planner.pin.virtual_stages"
                       : reader.has("planner.pin.schedule")     ? "planner.pin.schedule"
                                                                : "parallel.pipeline_config";
    int chunks = pins.virtualStages.value_or(1);
    bool isFixed = config.isPinned || pins.virtualStages;
    // The first chunk may hold only the embedding, and the last one only the head.
    if (int layers = config.model.layerCount();
        chunks > 1 && layers > 0 && !pins.stageLayers && pins.pp.value_or(1) * int64_t(chunks) > layers + 2)
      reader.error(path, fmt::format("{} stages with {} chunks each need as many layers but two, the model has {}",
                                     pins.pp.value_or(1), chunks, layers));
    if (isFixed && pins.schedule) {
      // If the number of micro-batches is free, checks with the smallest number that fills the stages.
      int stages = pins.pp.value_or(2);
      int64_t batches = std::min<int64_t>(pins.microBatches.value_or(stages), 1 << 30);
      std::string reason = planner::whyNotSchedulable(*pins.schedule, stages, static_cast<int>(batches), chunks);
      if (!reason.empty())
        reader.error(path, reason);
    }
    int64_t stages = pins.pp.value_or(1);
    for (const std::vector<int> *layers : {&config.recompute.fullLayers, &config.recompute.selectiveLayers})
      if (int64_t lists = static_cast<int64_t>(layers->size()) / stages; lists > 1 && lists != chunks)
        reader.error("recompute_config", fmt::format("{} lists of layers for {} chunk{} of a stage; say one list for "
                                                     "all of a stage, or one for each of its chunks",
                                                     lists, chunks, chunks == 1 ? "" : "s"));
    if (chunks > 1 && !pins.schedule && pins.pp == 1)
      reader.error(path, "virtual stages need at least 2 stages");
  }

  /// Reports one error for all kinds of offloading without a host link, because they have the same cause.
  void checkOffloading() {
    bool optimizer = pins.offloadOptimizer.value_or(false), activations = pins.offloadActivations.value_or(false);
    bool parameters = pins.offloadParameters.value_or(false);
    const std::string parametersPath = "planner.pin.offload_parameters";
    if (parameters && pins.zero.value_or(3) != 3)
      reader.error(parametersPath,
                   fmt::format("parameters are offloaded under ZeRO 3 only, the ZeRO stage is {}; planner.pin.zero: 3",
                               *pins.zero));
    if (parameters && !pins.offloadOptimizer.value_or(true))
      reader.error(parametersPath,
                   "parameters are offloaded with the optimizer only; planner.pin.offload_optimizer: True");
    std::string path = optimizer                                       ? "planner.pin.offload_optimizer"
                       : parameters                                    ? parametersPath
                       : reader.has("planner.pin.offload_activations") ? "planner.pin.offload_activations"
                                                                       : "swap_config.swap";
    if ((optimizer || activations || parameters) && !config.cluster.name.empty() && config.cluster.hostBandwidth <= 0)
      reader.error(path, fmt::format("nothing can be offloaded, cluster {} has no link to host memory "
                                     "(host.bandwidth); {}: True → False",
                                     config.cluster.name, last(path)));
  }

  const RunReader &reader;
  planner::Pins pins; ///< including derived pins
  const RunConfig &config;
};

} // namespace

void checkPins(const RunReader &reader) { PinChecker(reader).run(); }

} // namespace espalier
