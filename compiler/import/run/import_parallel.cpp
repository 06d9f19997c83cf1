// Imports parallel_mode, parallel_config, recompute_config and planner.pin: the plan properties that the file fixes,
// and MindFormers' batch arithmetic. check_pins.cpp checks a fixed plan.
#include "compiler/import/run/check_pins.h"
#include "compiler/import/run/run_reader.h"
#include "planner/model/schedule.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace espalier {
namespace {

enum class ParallelMode { Data, Pinned, Planner, Single };

ParallelMode readMode(const RunReader &reader) {
  bool saysParallel = reader.has("parallel") || reader.has("parallel_config") || reader.has("cluster") ||
                      reader.has("planner") || reader.config().cluster.devices() > 1;
  if (!reader.flag("use_parallel").value_or(saysParallel))
    return ParallelMode::Single;
  const std::map<std::string, int> names = {{"0", 0}, {"data_parallel", 0}, {"1", 1}, {"semi_auto_parallel", 1},
                                            {"2", 2}, {"auto_parallel", 2}, {"3", 3}, {"hybrid_parallel", 3}};
  std::optional<std::string> text = reader.text("parallel.parallel_mode");
  auto mode = names.find(text.value_or("2"));
  if (mode == names.end()) {
    reader.error("parallel.parallel_mode", fmt::format("no parallel_mode '{}', there are 0 (data parallel), "
                                                       "1 (as given) and 2 (planner)",
                                                       *text));
    return ParallelMode::Planner;
  }
  if (mode->second == 3)
    reader.error("parallel.parallel_mode", "parallel_mode 3 means code that is split by hand, there is "
                                           "none here: 3 → 1 or 2");
  return mode->second == 0 ? ParallelMode::Data : mode->second == 1 ? ParallelMode::Pinned : ParallelMode::Planner;
}

int64_t count(const RunReader &reader, const std::string &path) {
  return std::clamp<int64_t>(reader.integer(path).value_or(1), 1, 1000000000);
}

/// Returns the product, limited to 1e15 so that it cannot overflow.
int64_t product(std::initializer_list<int64_t> factors) {
  double exact = 1;
  int64_t result = 1;
  for (int64_t factor : factors) {
    exact *= static_cast<double>(factor);
    result = exact > 1e15 ? static_cast<int64_t>(1e15) : result * factor;
  }
  return result;
}

/// Returns the number of micro-batches by MindFormers' rule: micro_batch_num applies with pipeline stages, and
/// gradient_accumulation_steps without.
int64_t microBatchesOfFile(const RunReader &reader, int64_t stages) {
  int64_t interleave = count(reader, "micro_batch_interleave_num");
  const char *counted = stages > 1 ? "parallel_config.micro_batch_num" : "runner_config.gradient_accumulation_steps";
  const char *ignored = stages > 1 ? "runner_config.gradient_accumulation_steps" : "parallel_config.micro_batch_num";
  reader.report(ignored, KeyAction::Accepted,
                stages > 1 ? "micro_batch_num counts when pp is above 1" : "counts only when pp is above 1");
  return product({interleave, count(reader, counted)});
}

std::optional<bool> switchOf(const YamlNode *node) { return node && node->isScalar() ? yamlBool(*node) : std::nullopt; }

/// Returns the recompute policy of all layers. Lists per stage are applied on top of it.
planner::Recompute recomputeOfFile(const RunReader &reader) {
  if (switchOf(reader.find("recompute_config.recompute")).value_or(false))
    return planner::Recompute::Full;
  bool isSelective = switchOf(reader.find("recompute_config.select_recompute")).value_or(false);
  return isSelective ? planner::Recompute::Selective : planner::Recompute::None;
}

int zeroOfFile(const RunReader &reader) {
  if (!reader.flag("parallel.enable_parallel_optimizer").value_or(false))
    return 0;
  if (reader.flag("recompute_config.parallel_optimizer_comm_recompute").value_or(false))
    return 3;
  return reader.flag("parallel.parallel_optimizer_config.gradient_accumulation_shard").value_or(false) ? 2 : 1;
}

/// Returns the data-parallel ranks of a shard group, or 0 for all of dp. optimizer_weight_shard_size also counts the
/// context ranks and, with experts, those of the ep axis.
int zeroGroupOfFile(const RunReader &reader) {
  const std::string path = "parallel.parallel_optimizer_config.optimizer_weight_shard_size";
  const planner::Pins &pins = reader.config().pins;
  int64_t size = reader.integer(path).value_or(-1);
  if (size == -1)
    return 0;
  if (pins.zero == 0) {
    reader.report(path, KeyAction::Accepted, "counts only with enable_parallel_optimizer");
    return 0;
  }
  int64_t inner = product({*pins.cp, *pins.ep}), most = product({*pins.dp, inner});
  if (size >= inner && size <= most && size % inner == 0 && most % size == 0)
    return static_cast<int>(size / inner);
  std::vector<int64_t> sizes;
  for (int64_t group = 1; group <= *pins.dp && sizes.size() < 12; ++group)
    if (*pins.dp % group == 0)
      sizes.push_back(group * inner);
  reader.error(path, fmt::format("optimizer_weight_shard_size must be -1 or one of {} (ranks of dp {}{}), got {}",
                                 fmt::join(sizes, ", "), *pins.dp,
                                 inner > 1 ? fmt::format(" · {} context and expert ranks", inner) : "", size));
  return 0;
}

/// Returns the chunks per stage of an interleaved schedule: the number in the file, else two.
int64_t chunksOfFile(const RunReader &reader) {
  int64_t stated = reader.integer("model.model_config.pp_interleave_num").value_or(2);
  return std::clamp<int64_t>(reader.integer("planner.pin.virtual_stages").value_or(stated), 1, 1000000);
}

/// Returns the choice that a key names, and reports a name that is not in `choices`.
template <typename Choice, size_t count>
std::optional<Choice> choiceOf(const RunReader &reader, const std::string &path, const Choice (&choices)[count],
                               const char *(*nameOf)(Choice)) {
  std::optional<std::string> text = reader.text(path);
  std::vector<std::string> names;
  for (Choice choice : choices) {
    names.push_back(nameOf(choice));
    if (text == names.back())
      return choice;
  }
  if (text)
    reader.error(
        path, fmt::format("no choice '{}', there are {}{}", *text, fmt::join(names, ", "), didYouMean(*text, names)));
  return std::nullopt;
}

planner::Schedule scheduleOfFile(const RunReader &reader) {
  if (reader.flag("parallel.pipeline_config.pipeline_interleave").value_or(false) && chunksOfFile(reader) > 1)
    return planner::Schedule::Interleaved;
  if (reader.has("planner.pin.schedule"))
    return planner::Schedule::OneFOneB; // planner.pin.schedule replaces it
  return choiceOf(reader, "parallel.pipeline_config.pipeline_scheduler", planner::kSchedules, planner::scheduleName)
      .value_or(planner::Schedule::OneFOneB);
}

std::optional<std::vector<int>> integerList(const RunReader &reader, const std::string &path) {
  const YamlNode *node = reader.find(path);
  if (!node || !node->isSequence())
    return std::nullopt;
  std::vector<int> list;
  for (const YamlPtr &item : node->items) {
    std::optional<int64_t> value = yamlInteger(*item);
    if (!value || *value < -100000 || *value > 100000) {
      reader.error(path, fmt::format("{} must be a list of whole numbers, got {}", path, flowText(*item)));
      return std::nullopt;
    }
    list.push_back(static_cast<int>(*value));
  }
  return list;
}

/// Returns the entries of a MindFormers list, flattened. Such a list has one entry per stage, or is a list of such
/// lists, one per chunk. Reports another shape and returns nothing.
std::optional<std::vector<const YamlNode *>> entriesOfStages(const RunReader &reader, const std::string &path,
                                                             const YamlNode &node, size_t stages) {
  std::string key = path.substr(path.rfind('.') + 1);
  bool isNested =
      !node.items.empty() && std::ranges::all_of(node.items, [](const YamlPtr &item) { return item->isSequence(); });
  std::vector<const YamlNode *> entries;
  for (const YamlPtr &item : node.items) {
    if (isNested && item->items.size() != stages) {
      reader.error(path,
                   fmt::format("{} has a list of {} entries, pipeline_stage is {}", key, item->items.size(), stages));
      return std::nullopt;
    }
    if (!isNested)
      entries.push_back(item.get());
    for (size_t i = 0; isNested && i < stages; ++i)
      entries.push_back(item->items[i].get());
  }
  if (!isNested && entries.size() != stages) {
    reader.error(path, fmt::format("{} has {} entries, pipeline_stage is {}", key, entries.size(), stages));
    return std::nullopt;
  }
  return entries;
}

/// Pins the layers per chunk from `offset`, which lists each chunk's difference from an even split. A single list
/// applies to each chunk of the stages.
void pinStageLayers(const RunReader &reader) {
  planner::Pins &pins = reader.config().pins;
  const std::string path = "model.model_config.offset";
  const YamlNode *node = reader.find(path);
  if (!node || (node->isScalar() && yamlInteger(*node) == 0))
    return;
  if (!node->isSequence())
    return reader.error(path,
                        fmt::format("offset must be 0 or a list with one entry per stage, got {}", flowText(*node)));
  int64_t chunks = pins.schedule == planner::Schedule::Interleaved ? chunksOfFile(reader) : 1,
          stages = pins.pp.value_or(1);
  int layers = reader.config().model.layerCount();
  if (stages * chunks > layers + 2) // reported by the check of stages
    return;
  auto entries = entriesOfStages(reader, path, *node, static_cast<size_t>(stages));
  if (!entries)
    return;
  int64_t lists = static_cast<int64_t>(entries->size()) / stages;
  if (lists != 1 && lists != chunks)
    return reader.error(path, fmt::format("offset has {} lists, pp_interleave_num is {}", lists, chunks));
  std::vector<int> counts;
  for (size_t i = 0; i < static_cast<size_t>(stages * chunks); ++i) {
    const YamlNode &entry = *(*entries)[i % entries->size()];
    std::optional<int64_t> value = yamlInteger(entry);
    if (!value || *value < -layers || *value > layers)
      return reader.error(path, fmt::format("offset must be a list of whole numbers, at most the {} layers, got {}",
                                            layers, flowText(entry)));
    counts.push_back(static_cast<int>(*value + layers / (stages * chunks)));
  }
  pins.stageLayers = counts;
}

/// More layers than any stage has.
constexpr int allLayers = 100000;

/// Returns the number of stages that a list may describe. Limited to the number of layers, because the file may contain
/// any number.
size_t stagesOf(const RunReader &reader) {
  const RunConfig &config = reader.config();
  return static_cast<size_t>(std::min(config.pins.pp.value_or(1), std::max(1, config.model.layerCount())));
}

/// Returns the layers per stage of `True`, `False`, or a list of numbers and switches as in entriesOfStages.
std::vector<int> layersPerStage(const RunReader &reader, const std::string &path, const YamlNode &node) {
  size_t stages = stagesOf(reader);
  auto countOf = [](const YamlNode &item) -> std::optional<int64_t> {
    std::optional<bool> isOn = switchOf(&item);
    return isOn ? std::optional<int64_t>(*isOn ? allLayers : 0) : yamlInteger(item);
  };
  if (std::optional<bool> isOn = switchOf(&node))
    return std::vector<int>(stages, *isOn ? allLayers : 0);
  auto wrong = [&] {
    reader.error(path, fmt::format("{} must be True, False or a list of layers per stage, got {}",
                                   path.substr(path.rfind('.') + 1), flowText(node)));
    return std::vector<int>();
  };
  if (!node.isSequence())
    return wrong();
  auto entries = entriesOfStages(reader, path, node, stages);
  std::vector<int> counts;
  for (size_t i = 0; entries && i < entries->size(); ++i) {
    const YamlNode &entry = *(*entries)[i];
    std::optional<int64_t> layers = entry.isScalar() ? countOf(entry) : std::nullopt;
    if (!layers || *layers < 0 || *layers > allLayers)
      return wrong();
    counts.push_back(static_cast<int>(*layers));
  }
  return counts;
}

/// Returns the layers that recompute elementwise work. Patterns of operator names only select layers. Within a layer,
/// the compiler chooses which values are recomputed.
std::vector<int> selectiveLayers(const RunReader &reader, const YamlNode &node) {
  const std::string path = "recompute_config.select_recompute";
  bool isPatterns =
      node.isSequence() && !node.items.empty() && std::ranges::all_of(node.items, [](const YamlPtr &item) {
        return item->isScalar() && !yamlInteger(*item) && !yamlBool(*item);
      });
  if (!isPatterns && node.kind != YamlNode::Kind::Map)
    return layersPerStage(reader, path, node);
  reader.report(path, KeyAction::Mapped,
                "patterns choose layers; in them matrix products are kept and element-wise work "
                "is repeated");
  size_t stages = stagesOf(reader);
  if (isPatterns)
    return std::vector<int>(stages, allLayers);
  std::vector<int> most;
  for (const YamlEntry &pattern : node.entries) {
    std::vector<int> counts = layersPerStage(reader, path, *pattern.value);
    if (!most.empty() && !counts.empty() && counts.size() != most.size())
      reader.error(path, "select_recompute counts layers of stages for one pattern and of chunks for another");
    most.resize(std::max(most.size(), counts.size()));
    for (size_t i = 0; i < counts.size(); ++i)
      most[i] = std::max(most[i], counts[i]);
  }
  return most;
}

void importRecomputeLists(const RunReader &reader) {
  RecomputeConfig &recompute = reader.config().recompute;
  const std::string path = "recompute_config.recompute";
  auto isListed = [](const YamlNode *node) { return node && node->kind != YamlNode::Kind::Null && !switchOf(node); };
  if (const YamlNode *full = reader.find(path); isListed(full))
    recompute.fullLayers = layersPerStage(reader, path, *full);
  const YamlNode *select = reader.find("recompute_config.select_recompute");
  if (isListed(select))
    recompute.selectiveLayers = selectiveLayers(reader, *select);
}

/// Reports if slicing of saved inputs has no effect.
void reportSlicedInputs(const RunReader &reader) {
  const planner::Pins &pins = reader.config().pins;
  const char *path = "recompute_config.recompute_slice_activation";
  if (!reader.config().recompute.recomputeSliceActivation)
    return;
  if (pins.tp == 1)
    reader.report(path, KeyAction::Accepted, "no effect here: one tensor rank holds all of it");
  else if (pins.sequenceParallel.value_or(false))
    reader.report(path, KeyAction::Accepted, "no effect here: use_seq_parallel has split the kept inputs already");
}

void pinOffloading(const RunReader &reader) {
  planner::Pins &pins = reader.config().pins;
  pins.offloadOptimizer = pins.offloadParameters = false;
  pins.offloadActivations = reader.flag("swap_config.swap").value_or(false);
}

void pinFile(const RunReader &reader) {
  planner::Pins &pins = reader.config().pins;
  const std::string section = "parallel_config.";
  reader.config().isPinned = true;
  pins.tp = static_cast<int>(count(reader, section + "model_parallel"));
  pins.pp = static_cast<int>(count(reader, section + "pipeline_stage"));
  pins.cp = static_cast<int>(count(reader, section + "context_parallel"));
  // With a global batch, replicas and micro-batches that the file leaves out follow from it and from the devices.
  std::optional<int64_t> batch = reader.integer("planner.global_batch");
  int64_t replicas = count(reader, section + "data_parallel"), split = product({*pins.tp, *pins.pp, *pins.cp});
  if (batch && !reader.has(section + "data_parallel") && reader.config().cluster.devices() % split == 0)
    replicas = reader.config().cluster.devices() / split;
  pins.dp = static_cast<int>(replicas);
  pins.ep = reader.config().model.hasExperts() ? static_cast<int>(count(reader, section + "expert_parallel")) : 1;
  if (*pins.dp % *pins.ep == 0)
    *pins.dp /= *pins.ep; // experts are distributed over replicas
  else
    reader.error(section + "expert_parallel",
                 fmt::format("data_parallel {} is not a multiple of expert_parallel {}", *pins.dp, *pins.ep));
  pins.microBatchSize = count(reader, "runner_config.batch_size");
  pins.microBatches = microBatchesOfFile(reader, *pins.pp);
  if (int64_t once = product({replicas, *pins.microBatchSize});
      batch &&
      !reader.has(*pins.pp > 1 ? "parallel_config.micro_batch_num" : "runner_config.gradient_accumulation_steps") &&
      *batch % once == 0)
    pins.microBatches = std::clamp<int64_t>(*batch / once, 1, 1000000000);
  pins.zero = zeroOfFile(reader);
  pins.zeroGroup = zeroGroupOfFile(reader);
  pins.sequenceParallel = reader.flag(section + "use_seq_parallel").value_or(false) && *pins.tp > 1;
  // MindFormers forces the sharded form with a pipeline.
  pins.vocabParallel = *pins.pp > 1 || !reader.flag(section + "vocab_emb_dp").value_or(true);
  pins.recompute = recomputeOfFile(reader);
  pinOffloading(reader);
  pins.schedule = scheduleOfFile(reader);
  pinStageLayers(reader);
  importRecomputeLists(reader);
}

/// Pins mode 0 and single devices: one replica per device. The file's other axes are reset, as in MindFormers.
void pinDataParallel(const RunReader &reader, int devices) {
  planner::Pins &pins = reader.config().pins;
  for (const char *key : {"data_parallel", "model_parallel", "pipeline_stage", "context_parallel", "expert_parallel",
                          "micro_batch_num", "use_seq_parallel", "vocab_emb_dp"})
    reader.report(std::string("parallel_config.") + key, KeyAction::Accepted,
                  devices == 1 ? "the run has one device" : "parallel_mode 0 puts one replica on every device");
  reader.config().isPinned = true;
  pins.dp = devices;
  pins.tp = pins.pp = pins.cp = pins.ep = 1;
  pins.microBatchSize = count(reader, "runner_config.batch_size");
  pins.microBatches = product(
      {count(reader, "runner_config.gradient_accumulation_steps"), count(reader, "micro_batch_interleave_num")});
  pins.zero = zeroOfFile(reader);
  pins.zeroGroup = zeroGroupOfFile(reader);
  pins.sequenceParallel = pins.vocabParallel = false;
  pins.recompute = recomputeOfFile(reader);
  pinOffloading(reader);
  pins.schedule = planner::Schedule::OneFOneB;
  importRecomputeLists(reader);
}

/// Leaves the plan to the planner and returns the global batch of the plan in the file, which has no other effect.
int64_t freePlan(const RunReader &reader) {
  int64_t stages = count(reader, "parallel_config.pipeline_stage");
  int64_t batch = product({count(reader, "runner_config.batch_size"), count(reader, "parallel_config.data_parallel"),
                           microBatchesOfFile(reader, stages)});
  for (const char *path :
       {"parallel_config", "recompute_config.recompute", "recompute_config.select_recompute",
        "parallel.enable_parallel_optimizer", "parallel.parallel_optimizer_config", "parallel.pipeline_config",
        "recompute_config.parallel_optimizer_comm_recompute", "swap_config"})
    reader.report(path, KeyAction::Mapped, "the planner chooses at the same global batch; planner.pin fixes it");
  return batch;
}

/// Returns the value of one key of planner.pin, by its type. The key checker reports values below the minimum.
std::optional<int> pinOf(const RunReader &reader, const std::string &path, const std::optional<int> &) {
  std::optional<int64_t> value = reader.integer(path);
  int64_t least = path.starts_with("planner.pin.zero") ? 0 : 1;
  return value ? std::optional(static_cast<int>(std::clamp<int64_t>(*value, least, 1000000000))) : std::nullopt;
}

std::optional<int64_t> pinOf(const RunReader &reader, const std::string &path, const std::optional<int64_t> &) {
  std::optional<int64_t> value = reader.integer(path);
  return value.value_or(0) >= 1 ? value : std::nullopt;
}

std::optional<bool> pinOf(const RunReader &reader, const std::string &path, const std::optional<bool> &) {
  return reader.flag(path);
}

std::optional<planner::Recompute> pinOf(const RunReader &reader, const std::string &path,
                                        const std::optional<planner::Recompute> &) {
  return choiceOf(reader, path, planner::kRecomputes, planner::recomputeName);
}

std::optional<planner::Schedule> pinOf(const RunReader &reader, const std::string &path,
                                       const std::optional<planner::Schedule> &) {
  return choiceOf(reader, path, planner::kSchedules, planner::scheduleName);
}

std::optional<std::vector<int>> pinOf(const RunReader &reader, const std::string &path,
                                      const std::optional<std::vector<int>> &) {
  return integerList(reader, path);
}

/// Applies planner.pin over the plan in the file.
void applyPlannerPins(const RunReader &reader) {
  planner::Pins &pins = reader.config().pins;
  planner::visitFields([&](const char *key, const char *, auto pin, auto) {
    if (auto value = pinOf(reader, std::string("planner.pin.") + key, pins.*pin))
      pins.*pin = value;
  });
  if (pins.schedule && planner::isVShaped(*pins.schedule) && !pins.virtualStages)
    pins.virtualStages = planner::chunksOf(*pins.schedule, /*virtualStages=*/1);
}

/// Returns whether the file's own plan defines the samples per step. Pins then do not change them.
bool statesBatch(const RunReader &reader) {
  return std::ranges::any_of(
      std::initializer_list<const char *>{"runner_config.batch_size", "runner_config.gradient_accumulation_steps",
                                          "parallel_config.data_parallel", "parallel_config.micro_batch_num"},
      [&](const char *key) { return reader.has(key); });
}

int64_t batchOfPins(const RunConfig &config, int64_t otherwise) {
  const planner::Pins &pins = config.pins;
  bool hasReplicas = pins.dp && (pins.ep || !config.model.hasExperts());
  if (!hasReplicas || !pins.microBatchSize || !pins.microBatches)
    return otherwise;
  return product({*pins.dp, pins.ep.value_or(1), *pins.microBatchSize, *pins.microBatches});
}

} // namespace

void importParallel(const RunReader &reader, const RunReader &pins, const ImportOptions &options) {
  RunConfig &config = reader.config();
  config.recompute.mpCommRecompute = reader.flag("recompute_config.mp_comm_recompute").value_or(true);
  config.recompute.recomputeSliceActivation =
      reader.flag("recompute_config.recompute_slice_activation").value_or(false);
  ParallelMode mode = readMode(reader);
  if (options.freeAtBatch > 0) {
    if (mode == ParallelMode::Planner)
      applyPlannerPins(reader);
    freePlan(reader);
    applyPlannerPins(pins);
    config.globalBatch = options.freeAtBatch;
    checkPins(pins);
    return;
  }
  if (mode == ParallelMode::Single) {
    if (config.cluster.devices() > 1)
      reader.warning("use_parallel", fmt::format("use_parallel is False: one of the cluster's {} devices is "
                                                 "used; use_parallel: False → True",
                                                 config.cluster.devices()));
    config.cluster.hosts = config.cluster.devicesPerHost = 1;
  }
  int64_t batch = 1;
  if (mode == ParallelMode::Pinned)
    pinFile(reader);
  else if (mode == ParallelMode::Planner)
    batch = freePlan(reader);
  else
    pinDataParallel(reader, config.cluster.devices());
  applyPlannerPins(reader);
  if (config.isPinned && config.pins.schedule == planner::Schedule::Interleaved && !config.pins.virtualStages)
    config.pins.virtualStages = static_cast<int>(std::max<int64_t>(chunksOfFile(reader), 2));
  reportSlicedInputs(reader);
  if (config.isPinned || !statesBatch(reader))
    batch = batchOfPins(config, batch);
  std::optional<int64_t> wanted = reader.integer("planner.global_batch");
  if (wanted && (*wanted < 1 || *wanted > kMostCount)) // the key checker reports it
    wanted.reset();
  // A pinned plan is used exactly, so the two batches must agree. They may differ if the planner has a choice.
  if (wanted && config.isPinned && *wanted != batch)
    reader.error("planner.global_batch",
                 fmt::format("global_batch is {}, the pinned plan has {} = micro-batch "
                             "size {} · micro-batches {} · dp {}",
                             *wanted, batch, *config.pins.microBatchSize, *config.pins.microBatches,
                             product({*config.pins.dp, config.pins.ep.value_or(1)})));
  config.globalBatch = wanted.value_or(batch);
  checkPins(reader);
}

} // namespace espalier
