// Runs the import in order: file, --set, architecture, keys, sizes, then the parts. Every step continues as far as it
// can, so that errors of all steps are shown together.
#include "compiler/import/run/import_run.h"
#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/huggingface/pretrained_model.h"
#include "compiler/import/model/expression.h"
#include "compiler/import/model/further_tokens.h"
#include "compiler/import/run/pin_option.h"
#include "compiler/import/run/run_reader.h"
#include "compiler/import/run/trainer_format.h"
#include "compiler/import/yaml/base_config.h"
#include "compiler/import/yaml/config_files.h"
#include "compiler/import/yaml/run_file_writer.h"
#include "compiler/import/yaml/yaml_text.h"
#include "format/path_kind.h"
#include "planner/model/schedule.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <iterator>
#include <set>
#include <sstream>

namespace espalier {
namespace {

namespace fs = std::filesystem;

/// Returns a copy whose nodes all have the location `where`. The parser limits the depth.
YamlPtr relocated(const YamlPtr &node, const SourceLocation &where) {
  auto copy = std::make_shared<YamlNode>(*node);
  copy->where = where;
  for (YamlPtr &item : copy->items)
    item = relocated(item, where);
  for (YamlEntry &entry : copy->entries) {
    entry.keyWhere = where;
    entry.value = relocated(entry.value, where);
  }
  return copy;
}

/// Returns why `path` cannot be set: it continues through a value, or through a list without that item.
std::string whyNoWay(const YamlNode &root, const std::string &path) {
  const YamlNode *node = &root;
  size_t end = std::string::npos;
  for (size_t begin = 0; node->isMap() || node->isSequence(); begin = end + 1) {
    size_t dot = path.find('.', begin);
    std::string key = path.substr(begin, dot - begin);
    bool isNumber = key.size() <= 6 && key.find_first_not_of("0123456789") == std::string::npos;
    size_t item = node->isSequence() && isNumber ? std::stoul(key) : node->items.size();
    if (node->isSequence() && item >= node->items.size())
      return fmt::format("{} is a list of {} items, numbered from 0: there is no '{}'", path.substr(0, end),
                         node->items.size(), path.substr(0, dot));
    node = node->isSequence() ? node->items[item].get() : node->find(key);
    end = dot;
  }
  return fmt::format("'{}' needs a map at {}, which is {}", path, path.substr(0, end), flowText(*node));
}

/// Returns the node at "a.b.0", or null.
const YamlNode *nodeAt(const YamlNode &root, const std::string &path) {
  const YamlNode *node = &root;
  for (size_t begin = 0; node && begin <= path.size();) {
    size_t end = std::min(path.find('.', begin), path.size());
    std::string key = path.substr(begin, end - begin);
    if (node->isSequence()) {
      bool isNumber = !key.empty() && key.size() <= 6 && key.find_first_not_of("0123456789") == std::string::npos;
      size_t item = isNumber ? std::stoul(key) : node->items.size();
      node = item < node->items.size() ? node->items[item].get() : nullptr;
    } else {
      node = node->find(key);
    }
    begin = end + 1;
  }
  return node;
}

/// Records the values of the file below `old` that `value` replaces.
void recordReplaced(const YamlNode &old, const YamlNode &value, const std::string &path, ImportedRun &run) {
  if (old.isMap() && value.isMap()) {
    for (const YamlEntry &entry : value.entries)
      if (const YamlNode *below = old.find(entry.key))
        recordReplaced(*below, *entry.value, path + "." + entry.key, run);
    return;
  }
  bool isSame = old.kind == value.kind && flowText(old) == flowText(value);
  if (old.kind == YamlNode::Kind::Null || isSame || old.where.file == kSetSource)
    return;
  std::string text = fmt::format("{} ({}:{})", flowText(old), old.where.file, old.where.line);
  run.replaced.emplace(path, text);
  if (old.isMap())
    run.diagnostics.warning(value.where, value.kind == YamlNode::Kind::Null
                                             ? fmt::format("{}=null removes {}", path, text)
                                             : fmt::format("{}={} replaces {}", path, flowText(value), text));
}

/// Sets a value. A map is merged over the file's map, as a file is merged over its base_config; null removes.
YamlPtr applySet(const YamlPtr &root, const std::string &set, ImportedRun &run) {
  Diagnostics &diagnostics = run.diagnostics;
  const SourceLocation where{std::string(kSetSource), 0, 0};
  size_t equals = set.find('=');
  std::string path = set.substr(0, equals);
  if (equals == std::string::npos || path.empty() || path.size() > 200 || path.find("..") != std::string::npos ||
      path.starts_with('.') || path.ends_with('.') || std::count(path.begin(), path.end(), '.') > 8) {
    diagnostics.error(where, fmt::format("--set takes section.key=value, got '{}'", set.substr(0, 200)));
    return root;
  }
  Diagnostics faults;
  std::string text = set.substr(equals + 1);
  YamlPtr value = parseYaml(where.file, text.empty() ? "''" : text, faults);
  if (!value || faults.hasErrors()) {
    const Diagnostic fault = faults.sorted().front();
    diagnostics.error(where, fmt::format("the value of '{}' is not valid YAML: {}: {}", path, text, fault.message));
    return root;
  }
  value = relocated(value, where);
  if (const YamlNode *old = nodeAt(*root, path)) {
    recordReplaced(*old, *value, path, run);
    value = mergedOver(std::make_shared<YamlNode>(*old), value);
  }
  YamlPtr changed = withValue(root, path, value);
  if (!changed)
    diagnostics.error(where, whyNoWay(*root, path));
  return changed ? changed : root;
}

/// Returns the pins of the command line as one map, or null if there are none.
YamlPtr readPins(const std::vector<PinOption> &options, const Architecture *architecture, ImportedRun &run) {
  YamlPtr all;
  for (const PinOption &option : options) {
    YamlPtr pins = readPinOption(option.flag, option.text, run.diagnostics);
    for (const KeyReport &key : checkRunKeys(*pins, architecture, run.diagnostics))
      run.config.places[key.key] = key.where;
    if (!all)
      all = pins;
    else
      for (const YamlEntry &entry : pins->find("planner")->find("pin")->entries)
        all = withValue(all, "planner.pin." + entry.key, entry.value);
  }
  return all;
}

/// Returns the text of a merged file without the keys that name what was merged.
std::string completeText(YamlNode root) {
  std::erase_if(root.entries, [](const YamlEntry &entry) {
    return entry.key == "base_config" || entry.key == "pretrained_model_dir";
  });
  return yamlText(root);
}

/// Returns the run file's text with the command line's cluster, system and pins.
std::string completeRunText(YamlPtr root, const ImportOptions &options, const YamlPtr &pins) {
  for (const auto &[key, name] : {std::pair("cluster", &options.cluster), {"system", &options.system}}) {
    auto value = std::make_shared<YamlNode>();
    value->kind = YamlNode::Kind::Scalar;
    value->text = *name;
    value->quoted = true;
    if (!name->empty())
      root = withValue(root, key, value);
  }
  return completeText(pins ? *mergedOver(root, pins) : *root);
}

/// Returns a number or switch of model_config or moe_config, or 0 if it is not given.
double givenSize(const RunReader &reader, const std::string &name) {
  for (const char *section : {"model.model_config.", "moe_config."})
    if (const YamlNode *node = reader.find(section + name))
      return yamlBool(*node) ? *yamlBool(*node) : yamlNumber(*node).value_or(0);
  return 0;
}

/// Returns the entry of `arch:` whose condition the run file's sizes satisfy, or null.
const ConditionalArch *choiceBySizes(const RunReader &reader, const Architecture &architecture,
                                     const std::string &type) {
  for (const ConditionalArch &arch : architecture.conditionalArchs) {
    ExpressionValue value = evaluateExpression(
        arch.when, [&](const std::string &name, bool &) { return std::optional(givenSize(reader, name)); });
    if (arch.name == type && value.value.value_or(0) > 0)
      return &arch;
  }
  return nullptr;
}

/// Returns the name of the architecture: model.arch.type, or the key that replaces it in MindFormers since r1.6.
std::optional<std::string> architectureName(const RunReader &reader) {
  if (std::optional<std::string> type = reader.text("model.arch.type"))
    return type;
  const std::string section = "model.model_config.";
  if (std::vector<std::string> names = yamlTexts(reader.find(section + "architectures")); !names.empty())
    return names.front();
  std::optional<std::string> type = reader.text(section + "model_type");
  return type ? type : reader.text(section + "type");
}

/// Returns the model file for the run's architecture. A file whose condition on the run's sizes holds takes precedence
/// over a file that only has the name.
std::optional<Architecture> findArchitecture(const RunReader &reader, const std::vector<std::string> &folders) {
  std::optional<std::string> type = architectureName(reader);
  if (!type) {
    bool isReported = reader.has("pretrained_model_dir") && reader.diagnostics().hasErrors(); // at that key
    if (!isReported)
      reader.error("model", fmt::format("model.arch.type is missing, it chooses the file of configs/models; {}",
                                        reader.has("model") ? "name the model there, such as GPT2LMHeadModel"
                                                            : "if this file is a part of a run file, name the file "
                                                              "whose base_config lists it"));
    return std::nullopt;
  }
  bool isConfigType = !reader.has("model.arch.type") && type == reader.text("model.model_config.type");
  std::vector<std::string> known;
  std::string chosen;
  std::map<std::string, std::string> defaults;
  Diagnostics faults; ///< of model files that are not chosen
  for (const std::string &file : modelFiles(folders)) {
    Diagnostics own;
    std::optional<Architecture> architecture = loadArchitecture(file, own, folders);
    bool matches = fs::path(file).stem() == *type;
    if (architecture) {
      if (const ConditionalArch *choice = choiceBySizes(reader, *architecture, *type)) {
        defaults = choice->defaults;
        chosen = file;
        break;
      }
      const std::vector<std::string> &names = architecture->archNames;
      known.insert(known.end(), names.begin(), names.end());
      matches = matches || std::find(names.begin(), names.end(), *type) != names.end() ||
                (isConfigType && architecture->configTypes.front() == *type);
    }
    if (matches && chosen.empty())
      chosen = file;
    else
      faults.add(own);
  }
  reader.diagnostics().add(faults, chosen.empty() ? Severity::Error : Severity::Warning);
  if (!chosen.empty()) { // loads the file again, for its errors
    std::optional<Architecture> architecture = loadArchitecture(chosen, reader.diagnostics(), folders);
    for (size_t i = 0; architecture && i < architecture->sizes.size(); ++i)
      if (auto own = defaults.find(architecture->sizes[i].name); own != defaults.end())
        architecture->sizes[i].defaultText = own->second;
    return architecture;
  }
  reader.error(reader.has("model.arch.type") ? "model.arch.type" : "model.model_config",
               known.empty() ? "no folder with models/ is found, set ESPALIER_CONFIGS"
                             : fmt::format("no model file has arch '{}', there are {}{}", *type, fmt::join(known, ", "),
                                           didYouMean(*type, known)));
  return std::nullopt;
}

/// Returns model_config together with the keys of moe_config that are model sizes. A dense model ignores moe_config.
YamlNode modelSizesOf(const RunReader &reader, const Architecture &architecture) {
  const YamlNode *own = reader.find("model.model_config");
  YamlNode sizes = own ? *own : YamlNode();
  sizes.kind = YamlNode::Kind::Map;
  const YamlNode *experts = reader.find("moe_config");
  if (!architecture.sizeRule("expert_num")) {
    if (reader.integer("moe_config.expert_num").value_or(1) > 1)
      reader.error(
          "moe_config.expert_num",
          fmt::format("the model {} has no experts: expert_num → 1, or another model.arch.type", architecture.name));
    reader.report("moe_config", KeyAction::Accepted, "a dense model has no experts");
  } else if (experts) {
    for (const YamlEntry &entry : experts->entries)
      if (architecture.ownSizeRule(entry.key))
        sizes.entries.push_back(entry);
  }
  return sizes;
}

/// Warns about a balancing loss over other tokens than those of a sample.
void checkBalancing(const RunReader &reader, const SizeTable &sizes) {
  const char *path = "model.model_config.moe_router_load_balancing_type";
  std::string kind = reader.text(path).value_or("seq_aux_loss");
  auto factor = sizes.find("aux_loss_factor");
  if (kind == "seq_aux_loss" || factor == sizes.end() || factor->second.number.value_or(0) == 0)
    return;
  if (kind == "none")
    reader.error(path, "moe_router_load_balancing_type none has no balancing loss, but aux_loss_factor is above 0; "
                       "aux_loss_factor → 0");
  else
    reader.warning(path, fmt::format("each sample is balanced, as by seq_aux_loss, not as by {}", kind));
}

/// Reads a map from patterns of names to parameters. A null value removes an entry of the base.
NamedParameters namesIn(const YamlNode *map) {
  NamedParameters names;
  for (size_t i = 0; map && i < map->entries.size(); ++i)
    if (const YamlEntry &rule = map->entries[i]; rule.value->kind != YamlNode::Kind::Null)
      names.emplace_back(rule.key, rule.value->text);
  return names;
}

/// Returns the names of the parameters of segments and parts that the model does not have, for example of dense layers
/// if all layers have experts. A name with its segment, such as "block.norm", is another name of the parameter.
std::set<std::string> absentParameters(const Architecture &architecture, const ModelDescription &model) {
  std::set<std::string> absent;
  for (const char *section : {"segments", "parts"})
    if (const YamlNode *owners = architecture.root->find(section))
      for (const YamlEntry &owner : owners->entries)
        if (const YamlNode *parameters = owner.value->find("parameters"))
          for (const YamlEntry &parameter : parameters->entries)
            absent.insert({parameter.key, owner.key + "." + parameter.key});
  for (const SegmentDescription &segment : model.segments)
    for (const ParameterDescription &parameter : segment.parameters) {
      absent.erase(parameter.name);
      absent.erase(segment.kind + "." + parameter.name);
    }
  return absent;
}

/// Returns whether the norms of a run count their weights from 1, and those of the model in transformers do not.
bool hasOtherNormsThanHf(const Architecture &architecture, const SizeTable &sizes) {
  const char *name = "layernorm_zero_centered_gamma";
  const YamlNode *hf = architecture.root->find("hf_config"), *unsaid = hf ? hf->find("unsaid") : nullptr;
  const YamlNode *value = unsaid ? unsaid->find(name) : nullptr;
  auto size = sizes.find(name);
  return value && value->kind != YamlNode::Kind::Null && size != sizes.end() && size->second.number.value_or(0) != 0;
}

/// Returns the rules for the parameters that the model has, for each system whose files can hold them.
std::vector<WeightRules> weightRulesOf(const Architecture &architecture, const ModelDescription &model,
                                       const SizeTable &sizes) {
  std::vector<WeightRules> systems;
  std::set<std::string> absent = absentParameters(architecture, model);
  auto isAbsent = [&](const auto &rule) {
    std::istringstream words(rule.second.substr(0, rule.second.find('=')));
    return std::any_of(std::istream_iterator<std::string>(words), {},
                       [&](const std::string &word) { return absent.contains(word); });
  };
  if (const YamlNode *weights = architecture.root->find("weights"))
    for (const YamlEntry &system : weights->entries)
      if (system.value->kind != YamlNode::Kind::Null &&
          !(system.key == "hf" && hasOtherNormsThanHf(architecture, sizes)))
        systems.push_back({system.key, namesIn(system.value.get())});
  for (WeightRules &system : systems)
    std::erase_if(system.rules, isAbsent);
  return systems;
}

/// Adds modules that predict further tokens, if the run trains.
void importFurtherTokens(const RunReader &reader, const SizeTable &sizes) {
  auto depth = sizes.find("mtp_num_layers"), factor = sizes.find("mtp_loss_scaling_factor");
  std::string mode = reader.text("run_mode").value_or("train");
  if (reader.diagnostics().hasErrors() || depth == sizes.end() || depth->second.isShared || factor == sizes.end() ||
      mode == "predict" || mode == "eval")
    return;
  RunConfig &config = reader.config();
  int modules = static_cast<int>(depth->second.number.value_or(0));
  addFurtherTokens(modules, factor->second.number.value_or(0), depth->second.where, config.model, reader.diagnostics());
  if (modules == 0 || reader.diagnostics().hasErrors())
    return;
  for (WeightRules &system : config.weights) {
    NamedParameters names = furtherNames(modules, config.model, system.system, system.rules);
    system.rules.insert(system.rules.end(), names.begin(), names.end());
  }
  std::erase_if(config.weights, [](const WeightRules &system) { return system.system == "legacy"; }); // has no modules
}

void checkConfigType(const RunReader &reader, const Architecture &architecture) {
  std::optional<std::string> type = reader.text("model.model_config.type");
  const std::vector<std::string> &wanted = architecture.configTypes;
  if (type && std::find(wanted.begin(), wanted.end(), *type) == wanted.end())
    reader.error("model.model_config.type", fmt::format("model_config is a {}, the model {} requires {}", *type,
                                                        architecture.name, fmt::join(wanted, " or ")));
}

std::string grouped(int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

void deriveValues(const RunReader &reader) {
  const RunConfig &config = reader.config();
  const planner::Pins &pins = config.pins;
  reader.derive("model", config.model.name, "the model file that knows model.arch.type");
  reader.derive("parameters", grouped(config.model.parameterCount()), "exact, without padding, tied parameters once");
  if (int64_t trained = config.model.trainableCount(); trained < config.model.parameterCount())
    reader.derive("trained parameters", grouped(trained), "the others are frozen");
  reader.derive("layers", fmt::format("{}", config.model.layerCount()), "runs between first and last segment");
  std::string dims;
  for (const auto &[name, size] : config.model.dims)
    dims += fmt::format("{}{} {}", dims.empty() ? "" : ", ", name, size);
  reader.derive("dims", dims, "named dimensions of the model");
  reader.derive("devices", fmt::format("{}", config.cluster.devices()),
                fmt::format("{} hosts with {} devices of cluster {}", config.cluster.hosts,
                            config.cluster.devicesPerHost, config.cluster.name));
  const ClusterConfig &cluster = config.cluster;
  std::string limit = cluster.marginBytes > 0
                          ? fmt::format("what cluster {} has, less {:.2f} GB reserved and a margin of {:g} %",
                                        cluster.name, cluster.reservedBytes / 0x1p30, 100 * cluster.memoryMargin)
                          : "the lower of the cluster's and context.max_device_memory";
  reader.derive("memory", fmt::format("{:.2f} GB", cluster.memoryBytes / 0x1p30), "limit per device: " + limit);
  const SystemConfig &system = config.system;
  reader.derive(
      "system", system.name,
      fmt::format("software that the plan is priced for: predicted times err by {:.0f} %, comparisons of plans by "
                  "{:.0f} %",
                  100 * system.error.time, 100 * system.error.comparison));
  reader.derive("global batch", fmt::format("{}", config.globalBatch), "samples per optimizer step under every plan");
  if (config.isPinned)
    reader.derive("plan",
                  fmt::format("dp {} tp {} pp {} cp {}{}, {} micro-batches of {}, zero {}{}, recompute {}, {}",
                              *pins.dp, *pins.tp, *pins.pp, *pins.cp,
                              config.model.hasExperts() ? fmt::format(" ep {}", *pins.ep) : "", *pins.microBatches,
                              *pins.microBatchSize, *pins.zero,
                              *pins.zeroGroup > 0 ? fmt::format(" in groups of {}", *pins.zeroGroup) : "",
                              planner::recomputeName(*pins.recompute), planner::scheduleName(*pins.schedule)),
                  "pinned by the file");
  else
    reader.derive("plan", "free", "the planner chooses what planner.pin leaves open");
}

} // namespace

ImportedRun::operator HfModel() const { return {architecture, sizes, config.model}; }

void leaveBackward(RunConfig &run) {
  planner::Pins &pins = run.pins;
  pins.zero = pins.zeroGroup = 0;
  pins.virtualStages = 1;
  pins.schedule = planner::Schedule::OneFOneB;
  pins.recompute = planner::Recompute::None;
  pins.offloadOptimizer = pins.offloadActivations = pins.offloadParameters = false;
  run.recompute = {};
  if (pins.stageLayers && pins.stageLayers->size() != static_cast<size_t>(pins.pp.value_or(1)))
    pins.stageLayers.reset();
  if (!run.isPinned)
    return;
  run.globalBatch /= pins.microBatches.value_or(1);
  pins.microBatches = 1;
}

ImportedRun importRun(const std::string &file, const ImportOptions &options) {
  ImportedRun run;
  run.config.file = file;
  if (rt::PathKind kind = rt::pathKind(file); kind != rt::PathKind::RunFile && kind != rt::PathKind::Unknown) {
    run.diagnostics.error({file, 0, 0}, rt::wayOf(file));
    return run;
  }
  YamlPtr root =
      loadYamlMap(file, "a run file is a map of sections such as model and parallel_config", run.diagnostics);
  if (!root)
    return run;
  auto setsBase = [](const std::string &set) { return set.starts_with("base_config="); };
  for (const std::string &set : options.sets)
    root = setsBase(set) ? applySet(root, set, run) : root;
  root = mergeBaseConfigs(root, file, run.diagnostics, BaseMerge::Sections);
  for (const std::string &set : options.sets)
    root = setsBase(set) ? root : applySet(root, set, run);
  root = translateTrainerFormat(root, run.diagnostics);
  std::vector<std::string> folders = configFolders(file, options.searchPath);
  std::error_code error;
  const char *named = std::getenv("ESPALIER_CONFIGS");
  if (named && *named && !fs::is_directory(fs::path(named) / "models", error))
    run.diagnostics.warning({"ESPALIER_CONFIGS", 0, 0}, fmt::format("is not searched: {} has no models/", named));
  root = mergePretrainedModel(root, file, folders, run.diagnostics);
  RunReader reader(*root, run);
  std::optional<Architecture> architecture = findArchitecture(reader, folders);
  run.keys = checkRunKeys(*root, architecture ? &*architecture : nullptr, run.diagnostics);
  SizeTable sizes;
  if (architecture) {
    checkConfigType(reader, *architecture);
    YamlNode given = modelSizesOf(reader, *architecture);
    sizes = resolveSizes(*architecture, &given, run.diagnostics);
    checkBalancing(reader, sizes);
    run.config.model = describeModel(*architecture, sizes, run.diagnostics);
    run.config.modelFile = architecture->file;
    run.config.weights = weightRulesOf(*architecture, run.config.model, sizes);
    importFurtherTokens(reader, sizes);
    importAdapters(reader, namesIn(architecture->root->find("modules")));
  }
  refuseUnbuilt(reader, architecture ? &*architecture : nullptr, sizes);
  importDTypes(reader, sizes);
  importTraining(reader);
  importData(reader);
  importCluster(reader, options, folders);
  importSystem(reader, options, folders);
  importMatmulFormat(reader);
  importDocumentTokens(reader);
  YamlPtr pinned = readPins(options.pins, architecture ? &*architecture : nullptr, run);
  if (architecture) // plan checks need the model's dimensions
    importParallel(reader, RunReader(*root, run, pinned.get()), options);
  if (run.ok())
    importRamp(reader);
  run.runText = completeRunText(root, options, pinned);
  if (architecture)
    run.modelText = completeText(*architecture->root);
  if (run.config.runMode == "eval")
    leaveBackward(run.config);
  for (const KeyReport &key : run.keys)
    run.config.places.emplace(key.key, key.where);
  if (run.ok())
    deriveValues(reader);
  run.architecture = std::move(architecture);
  run.sizes = std::move(sizes);
  return run;
}

} // namespace espalier
