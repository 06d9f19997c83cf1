// Imports the software whose performance is predicted: from --system, from the file's `system`, or Espalier itself.
#include "compiler/import/run/run_reader.h"
#include "compiler/import/yaml/config_files.h"
#include "planner/model/error.h"
#include "planner/model/schedule.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {
namespace {

constexpr const char *otherDevices = "other"; ///< device classes that a list of errors does not name

/// Returns whether an attention of the model has dropout.
bool dropsScores(const ModelDescription &model) {
  auto drops = [](const OpDescription &op) {
    auto rate = op.numbers.find("rate");
    return op.kind == "attention" && rate != op.numbers.end() && rate->second > 0;
  };
  return std::ranges::any_of(
      model.segments, [&](const SegmentDescription &segment) { return std::ranges::any_of(segment.ops, drops); });
}

/// Reads values of the cluster's device class.
class DeviceReader {
protected:
  DeviceReader(const ClusterConfig &cluster, Diagnostics &diagnostics) : cluster(cluster), diagnostics(diagnostics) {}

  void expectKeys(const YamlNode &map, const std::vector<std::string> &known, const char *what) {
    for (const YamlEntry &entry : map.entries)
      if (std::ranges::find(known, entry.key) == known.end())
        diagnostics.error(entry.keyWhere,
                          fmt::format("unknown key '{}' in {}{}", entry.key, what, didYouMean(entry.key, known)));
  }

  void numbers(const YamlNode &map, const char *section, std::vector<std::pair<const char *, double *>> fields) {
    const YamlNode *node = map.find(section);
    if (!node)
      return;
    std::vector<std::string> known;
    for (auto [key, target] : fields) {
      known.emplace_back(key);
      number(*node, key, *target);
    }
    expectKeys(*node, known, section);
  }

  /// Reads a number, or the entry for the cluster's device class from a list of numbers by class.
  void number(const YamlNode &map, const char *key, double &target, bool isBytes = false) {
    const YamlNode *node = map.find(key);
    if (node && node->isMap())
      node = node->find(node->find(cluster.device) ? cluster.device : otherDevices);
    if (!node)
      return;
    std::optional<double> value = isBytes ? yamlBytes(*node) : yamlNumber(*node);
    constexpr double most = 1e15;
    if (value && *value >= 0 && *value <= most)
      target = *value;
    else
      diagnostics.error(node->where,
                        fmt::format("{} must be a {}, got {}", key,
                                    isBytes ? "size such as 2GB" : "number that is not negative", flowText(*node)));
  }

  /// Returns the index of the text in `texts`; 0 if the key is not given.
  size_t choice(const YamlNode &map, const char *key, const std::vector<std::string> &texts) {
    const YamlNode *node = map.find(key);
    auto found = node ? std::ranges::find(texts, node->text) : texts.begin();
    if (found != texts.end())
      return static_cast<size_t>(found - texts.begin());
    diagnostics.error(node->where,
                      fmt::format("{} must be {}, got {}", key, fmt::join(texts, " or "), flowText(*node)));
    return 0;
  }

  double share(const YamlNode &node, const std::string &key) {
    std::optional<double> value = yamlNumber(node);
    if (value && *value >= 0 && *value <= 1)
      return *value;
    diagnostics.error(node.where, fmt::format("{} must be a number from 0 to 1, got {}", key, flowText(node)));
    return 0;
  }

  /// Returns the entry for the cluster's device class from a list of fractions by class.
  double byDevice(const YamlNode &map, const char *key) {
    const YamlNode *list = map.find(key);
    const YamlNode *other = list ? list->find(otherDevices) : nullptr;
    if (!other) {
      diagnostics.error(list ? list->where : map.where,
                        fmt::format("{} must be a list of shares by device with an entry '{}'", key, otherDevices));
      return 0;
    }
    double found = 0;
    for (const YamlEntry &entry : list->entries) {
      double value = share(*entry.value, fmt::format("{}.{}", key, entry.key));
      if (entry.key == cluster.device || (entry.key == otherDevices && !list->find(cluster.device)))
        found = value;
    }
    return found;
  }

  const ClusterConfig &cluster;
  Diagnostics &diagnostics;
};

/// Reads one file of configs/systems.
class SystemReader : DeviceReader {
public:
  explicit SystemReader(const RunReader &run)
      : DeviceReader(run.config().cluster, run.diagnostics()), run(run), system(run.config().system) {}

  void read(const YamlNode &map) {
    if (const YamlNode *name = map.find("name"))
      system.name = name->text;
    expectKeys(map,
               {"name",
                "time_error",
                "comparison_error",
                "family_error",
                "measured",
                "overlap",
                "lacks",
                "zero",
                "schedules",
                "bytes",
                "score_bytes",
                "logit_bytes",
                "unsharded_share",
                "attention_share",
                "recompute",
                "formats",
                "efficiency",
                "gather_seconds",
                "reserved_bytes",
                "sends",
                "context",
                "dropout_bytes",
                "fused_attention",
                "stages",
                "experts"},
               "a system");
    planner::ModelError &error = system.error;
    error.time = byDevice(map, "time_error");
    error.comparison = byDevice(map, "comparison_error");
    if (map.find("family_error"))
      error.family = byDevice(map, "family_error");
    readMeasured(map);
    readPlans(map);
    readStorage(map);
    readAttention(map);
    readSpeed(map);
    const YamlNode *overlap = map.find("overlap");
    if (!overlap)
      return;
    planner::Software &software = system.software;
    expectKeys(*overlap, {"tensor", "products", "context", "expert", "gathers", "gradients"}, "overlap");
    double products = 0;
    number(*overlap, "products", products);
    system.storage.splitsProducts = products > 0;
    for (auto [key, target] : {std::pair("tensor", &software.hiddenTensor),
                               {"context", &software.hiddenContext},
                               {"expert", &software.hiddenExpert},
                               {"gathers", &software.hiddenGathers},
                               {"gradients", &software.hiddenGradients}})
      if (const YamlNode *node = overlap->find(key))
        *target = share(*node, std::string("overlap.") + key);
  }

private:
  /// Reads the most ranks of each axis in measured runs.
  void readMeasured(const YamlNode &map) {
    const YamlNode *node = map.find("measured");
    if (!node)
      return;
    std::vector<std::string> known;
    for (size_t axis = 0; axis < meshAxes.size(); ++axis) {
      known.emplace_back(meshAxes[axis]);
      const YamlNode *entry = node->find(known.back());
      std::optional<int64_t> ranks = entry ? yamlInteger(*entry) : 0;
      if (ranks && *ranks >= 0 && *ranks <= INT32_MAX)
        system.error.measured[axis] = static_cast<int>(*ranks);
      else
        diagnostics.error(entry->where,
                          fmt::format("measured.{} must be a number of ranks, got {}", known.back(), flowText(*entry)));
    }
    expectKeys(*node, known, "measured");
  }

  /// Reads which plans the software can run.
  void readPlans(const YamlNode &map) {
    planner::Software &software = system.software;
    using planner::Axis;
    const std::pair<const char *, Axis> axes[] = {
        {"tp", Axis::Tp}, {"pp", Axis::Pp}, {"cp", Axis::Cp}, {"ep", Axis::Ep}};
    if (const YamlNode *lacks = map.find("lacks"))
      for (const std::string &name : yamlTexts(lacks)) {
        const auto *axis = std::ranges::find(axes, name, [](const auto &entry) { return std::string(entry.first); });
        if (axis == std::end(axes))
          diagnostics.error(lacks->where, fmt::format("lacks is a list of tp, pp, cp and ep, got '{}'", name));
        else
          software.lacks[axis->second] = true;
      }
    if (const YamlNode *node = map.find("zero"))
      for (const std::string &text : yamlTexts(node)) {
        if (text.size() != 1 || text < "0" || text > "3")
          diagnostics.error(node->where, fmt::format("zero is a list of ZeRO stages from 0 to 3, got {}", text));
        else
          software.zeroStages.push_back(text[0] - '0');
      }
    if (const YamlNode *node = map.find("schedules"))
      for (const std::string &name : yamlTexts(node)) {
        std::optional<planner::Schedule> schedule = planner::scheduleNamed(name);
        if (!schedule)
          diagnostics.error(node->where, fmt::format("no schedule '{}'", name));
        else
          software.schedules.push_back(*schedule);
      }
    software.contextOrders =
        static_cast<planner::ContextOrders>(choice(map, "context", {"contiguous", "zigzag", "both"}));
    software.hasEvenStages = choice(map, "stages", {"any", "even"}) == 1;
    if (const YamlNode *recompute = map.find("recompute"))
      software.recomputeScope =
          static_cast<planner::RecomputeScope>(choice(*recompute, "choice", {"layer", "prefix", "chunk", "model"}));
    if (const YamlNode *experts = map.find("experts")) {
      expectKeys(*experts, {"sequence", "tensor", "context", "imbalance", "sent", "bits", "beside"}, "experts");
      software.splitsSequenceOfExperts = choice(*experts, "sequence", {"any", "split"}) == 1;
      software.hasWholeExperts = choice(*experts, "tensor", {"split", "any"}) == 1;
      software.hasExpertsOverContext = choice(*experts, "context", {"replicas", "any"}) == 1;
      software.dispatch.oncePerHost = choice(*experts, "sent", {"per_choice", "per_host"}) == 1;
      number(*experts, "imbalance", system.storage.expertImbalance);
      double bits = 16; // of the compute dtype
      number(*experts, "bits", bits);
      software.dispatch.bytesShare = bits / 16;
      if (const YamlNode *beside = experts->find("beside"))
        software.dispatch.besideShare = share(*beside, "experts.beside");
    }
  }

  /// Reads what the software stores and repeats.
  void readStorage(const YamlNode &map) {
    SystemStorage &storage = system.storage;
    numbers(map, "bytes",
            {{"gradients", &storage.gradientBytes},
             {"reduced", &storage.reducedBytes},
             {"optimizer", &storage.optimizerBytes},
             {"update", &storage.updateBytes},
             {"flat_update", &storage.flatUpdateBytes},
             {"gradient_passes", &storage.gradientPasses},
             {"accumulation", &storage.accumulationBytes}});
    number(map, "logit_bytes", storage.logitBytes);
    number(map, "unsharded_share", storage.unshardedShare);
    number(map, "reserved_bytes", system.reservedBytes, /*isBytes=*/true);
    system.scattersBoundary = choice(map, "sends", {"whole", "scattered"}) == 1;
    const YamlNode *recompute = map.find("recompute");
    if (!recompute)
      return;
    expectKeys(*recompute, {"choice", "full", "selective"}, "recompute");
    storage.repeatsWholeLayer = choice(*recompute, "full", {"needed", "whole_layer"}) == 1;
    storage.selective = static_cast<SystemStorage::Selective>(
        choice(*recompute, "selective", {"elementwise", "attention", "second_products"}));
  }

  /// Reads whether attention stores its scores: the software has no fused kernel, none for devices of this class, or
  /// the run does without it. Selective recompute then repeats the attention. Must run after readStorage().
  void readAttention(const YamlNode &map) {
    SystemStorage &storage = system.storage;
    double scores = 0, dropout = 0, leastCapability = 0;
    number(map, "score_bytes", scores);
    number(map, "dropout_bytes", dropout);
    number(map, "fused_attention", leastCapability);
    if (map.find("fused_attention")) {
      bool isOnDevice = cluster.capability == 0 || cluster.capability >= leastCapability;
      if (isOnDevice && run.flag("model.model_config.use_flash_attention").value_or(true))
        return;
      storage.selective = SystemStorage::Selective::Attention;
    }
    storage.scoreBytes = scores;
    storage.dropsScores = dropout > 0 && dropsScores(run.config().model);
    if (storage.dropsScores)
      storage.scoreBytes += dropout;
  }

  /// Reads the factors of the cluster's rates.
  void readSpeed(const YamlNode &map) {
    numbers(map, "efficiency", {{"matmul", &system.matmulFactor}, {"memory", &system.memoryFactor}});
    number(map, "attention_share", system.attentionFactor);
    number(map, "gather_seconds", system.software.gatherSeconds);
    if (const YamlNode *formats = map.find("formats"))
      for (const YamlEntry &entry : formats->entries)
        number(*formats, entry.key.c_str(), system.formatGains[entry.key]);
  }

  const RunReader &run;
  SystemConfig &system;
};

/// Reads shares/intervals.yaml: the errors of predicted steps by content, which no system file repeats.
class IntervalReader : DeviceReader {
public:
  IntervalReader(const RunReader &run) : DeviceReader(run.config().cluster, run.diagnostics()) {}

  void read(const YamlNode &map, planner::ModelError &error) {
    std::vector<std::string> known = {"dense", "most_devices"};
    for (size_t i = 0; i < error.content.size(); ++i) {
      known.emplace_back(planner::contentName(static_cast<planner::Content>(i)));
      if (const YamlNode *node = map.find(known.back()))
        error.content[i] = share(*node, known.back());
    }
    number(map, "dense", error.unmeasured);
    error.unmeasured = std::max(error.time, error.unmeasured);
    double devices = 0;
    number(map, "most_devices", devices);
    error.measuredDevices = static_cast<int>(std::min(devices, 1e9));
    expectKeys(map, known, "the intervals");
  }
};

} // namespace

void importSystem(const RunReader &reader, const ImportOptions &options, const std::vector<std::string> &folders) {
  SystemConfig &system = reader.config().system;
  std::string name = reader.text("system").value_or(system.name);
  SourceLocation where = reader.where("system");
  if (!options.system.empty()) {
    name = options.system;
    where = {"--system", 0, 0};
    reader.report("system", KeyAction::Accepted, "--system wins");
  }
  std::string file = findConfig("system", name, folders);
  if (file.empty()) {
    reader.diagnostics().error(where, noConfig("system", name, folders));
    return;
  }
  system.name = name;
  if (YamlPtr root = loadYamlMap(file, "a system file is a map of constants", reader.diagnostics()))
    SystemReader(reader).read(*root);
  std::string intervals = findConfig("share", "intervals", folders);
  if (YamlPtr root =
          intervals.empty() ? nullptr : loadYamlMap(intervals, "intervals are a map of shares", reader.diagnostics()))
    IntervalReader(reader).read(*root, system.error);
}

void importMatmulFormat(const RunReader &reader) {
  RunConfig &config = reader.config();
  const std::string key = "model.model_config.matmul_format";
  const std::vector<std::string> known = {"fp8_hybrid", "fp8_e4m3", "fp4_e2m1"};
  std::optional<std::string> format = reader.text(key);
  if (!format)
    return;
  if (std::ranges::find(known, *format) == known.end())
    return reader.error(key, fmt::format("no matmul_format '{}', there are {}{}", *format, fmt::join(known, ", "),
                                         didYouMean(*format, known)));
  if (config.dtypes.compute == DType::F32)
    return reader.error(key, fmt::format("matmul_format {} replaces a 16-bit compute_dtype, which is float32; "
                                         "compute_dtype: float32 → bfloat16",
                                         *format));
  if (reader.diagnostics().hasErrors()) // the system may be unknown
    return;
  if (config.system.formatGain(*format) <= 0)
    return reader.error(key,
                        fmt::format("the system {} has no rate of {} products on {}; remove matmul_format, or choose "
                                    "another cluster or system",
                                    config.system.name, format->substr(0, 3), config.cluster.name));
  config.matmulFormat = *format;
  reader.refuse(key,
                fmt::format("there are no kernels for {} products: `espalier plan` prices and exports such a run; to "
                            "run it in compute_dtype, remove matmul_format",
                            format->substr(0, 3)));
}

} // namespace espalier
