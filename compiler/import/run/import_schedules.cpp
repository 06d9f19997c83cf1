// Imports the learning rates: the schedule of the run, and those of groups of parameters.
#include "compiler/import/run/run_reader.h"
#include "format/abi.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace espalier {
namespace {

void importKind(const RunReader &reader, const std::string &section, rt::pb::LearningRate &schedule) {
  const std::map<std::string, std::string> kinds = {
      {"constant", "constant"},
      {"ConstantWarmUpLR", "constant"},
      {"linear", "linear"},
      {"LinearWithWarmUpLR", "linear"},
      {"cosine", "cosine"},
      {"CosineWithWarmUpLR", "cosine"},
      {"polynomial", "polynomial"},
      {"PolynomialWithWarmUpLR", "polynomial"},
      {"inverse_sqrt", "inverse_sqrt"},
      {"inverse-square-root", "inverse_sqrt"},
      {"wsd", "wsd"},
      {"WSD", "wsd"},
  };
  schedule.set_kind("constant");
  std::optional<std::string> type = reader.text(section + "type");
  if (!type)
    return;
  auto kind = kinds.find(*type);
  if (kind != kinds.end()) {
    schedule.set_kind(kind->second);
    return;
  }
  std::vector<std::string> names;
  for (const auto &[name, meaning] : kinds)
    names.push_back(name);
  reader.error(section + "type", fmt::format("no learning-rate schedule '{}', there are {}{}", *type,
                                             fmt::join(names, ", "), didYouMean(*type, names)));
}

/// Imports the warmup, which two keys can define. The one with the higher priority wins: --set, then the file, then its
/// bases. If both have the same priority, the ratio wins, as in MindFormers.
void importWarmup(const RunReader &reader, const std::string &section, rt::pb::LearningRate &schedule) {
  const std::string ratioKey = section + "warmup_ratio", stepsKey = section + "warmup_steps";
  schedule.set_warmup_steps(reader.integer(stepsKey).value_or(0));
  schedule.set_warmup_ratio(reader.number(ratioKey).value_or(-1));
  if (reader.has(ratioKey) && (schedule.warmup_ratio() < 0 || schedule.warmup_ratio() > 1))
    reader.error(ratioKey, fmt::format("warmup_ratio is {}, must be in [0, 1]", schedule.warmup_ratio()));
  if (reader.nearness(stepsKey) > reader.nearness(ratioKey)) {
    schedule.set_warmup_ratio(-1);
    reader.report(ratioKey, KeyAction::Accepted, "the nearer warmup_steps wins");
  } else if (schedule.warmup_ratio() >= 0) {
    reader.report(stepsKey, KeyAction::Accepted, "warmup_ratio wins");
  }
  if (schedule.warmup_ratio() < 0 && schedule.total_steps() > 0 && schedule.warmup_steps() > schedule.total_steps())
    reader.error(stepsKey, fmt::format("warmup_steps is {}, must be at most the total_steps {}",
                                       schedule.warmup_steps(), schedule.total_steps()));
}

/// Imports the schedule of a section with the keys of lr_schedule. `section` ends with a dot, or is empty.
void importSchedule(const RunReader &reader, const std::string &section, rt::pb::LearningRate &schedule) {
  importKind(reader, section, schedule);
  std::optional<double> peak = reader.number(section + "learning_rate");
  if (peak)
    reader.report("optimizer.learning_rate", KeyAction::Accepted, "lr_schedule.learning_rate wins");
  else
    peak = reader.number("optimizer.learning_rate");
  schedule.set_peak(peak.value_or(1e-3));
  // MindFormers' default. It prevents a polynomial schedule without lr_end from being constant.
  double defaultEnd = schedule.kind() == "polynomial" ? 1e-7 : 0;
  schedule.set_end(reader.number(section + "lr_end").value_or(defaultEnd));
  schedule.set_warmup_init(reader.number(section + "warmup_lr_init").value_or(0));
  schedule.set_power(reader.number(section + "power").value_or(1));
  schedule.set_cycles(reader.number(section + "num_cycles").value_or(0.5));
  schedule.set_total_steps(reader.integer(section + "total_steps").value_or(-1));
  schedule.set_decay_steps(reader.integer(section + "decay_steps").value_or(-1));
  if (reader.has(section + "warmup_epochs"))
    reader.error(section + "warmup_epochs", "the steps of an epoch are not known before the data are, "
                                            "give warmup_steps or warmup_ratio");
  if (schedule.peak() <= 0)
    reader.error(section + "learning_rate", fmt::format("learning_rate is {}, must be above 0", schedule.peak()));
  if (schedule.kind() != "constant" && schedule.end() > schedule.peak())
    reader.error(section + "lr_end",
                 fmt::format("lr_end ({}) must be at most learning_rate ({})", schedule.end(), schedule.peak()));
  if (schedule.total_steps() == 0 || schedule.total_steps() < -1)
    reader.error(section + "total_steps",
                 fmt::format("total_steps is {}, must be -1 or at least 1", schedule.total_steps()));
  importWarmup(reader, section, schedule);
  if (schedule.kind() == "wsd" && schedule.decay_steps() < 0)
    reader.error(section + "type", "wsd needs " + section + "decay_steps");
}

/// Returns whether a name has the form of a pattern, in which `*` stands for any text.
bool isLike(std::string_view name, std::string_view pattern) {
  size_t star = pattern.find('*');
  if (star == std::string_view::npos)
    return name == pattern;
  if (!name.starts_with(pattern.substr(0, star)))
    return false;
  for (size_t at = star; at <= name.size(); ++at)
    if (isLike(name.substr(at), pattern.substr(star + 1)))
      return true;
  return false;
}

/// Returns the names of the model's trained parameters that `isWanted` accepts, each once: "embed.wte".
template <typename IsWanted> std::vector<std::string> trainedNames(const ModelDescription &model, IsWanted isWanted) {
  std::vector<std::string> names;
  for (const SegmentDescription &segment : model.segments)
    for (const ParameterDescription &parameter : segment.parameters) {
      std::string name = segment.kind + "." + parameter.name;
      if (!parameter.frozen && parameter.tiedTo.empty() && isWanted(name, parameter))
        names.push_back(name);
    }
  return names;
}

/// Adds a group, and checks that no parameter is in two.
void addGroup(const RunReader &reader, const std::string &path, RateGroup group) {
  std::vector<RateGroup> &groups = reader.config().optimizer.rateGroups;
  if (groups.size() == static_cast<size_t>(rt::mostRateGroups))
    return reader.error(path, fmt::format("a plan has at most {} groups of parameters with their own learning rate; "
                                          "join groups with equal rates",
                                          rt::mostRateGroups));
  for (const RateGroup &other : groups)
    for (const std::string &name : group.parameters)
      if (std::ranges::find(other.parameters, name) != other.parameters.end())
        return reader.error(path, fmt::format("parameter {} is in two groups of learning rates", name));
  groups.push_back(std::move(group));
}

/// Imports a group of grouped_lr_schedule: parameters and a schedule of their own.
void importGroup(const RunReader &reader, const std::string &path, const YamlNode &item) {
  RunReader inside = reader.inside(item);
  RateGroup group;
  importSchedule(inside, "", group.schedule);
  group.weightDecay = inside.number("weight_decay");
  if (group.weightDecay.value_or(0) < 0)
    inside.error("weight_decay", fmt::format("weight_decay is {}, must be at least 0", *group.weightDecay));
  for (const std::string &pattern : yamlTexts(inside.find("params"))) {
    std::vector<std::string> found = trainedNames(
        reader.config().model, [&](const std::string &name, const auto &) { return isLike(name, pattern); });
    if (found.empty() && !reader.config().model.segments.empty())
      inside.error("params", fmt::format("no trained parameter of the model is named '{}', there are {}", pattern,
                                         fmt::join(trainedNames(reader.config().model,
                                                                [](const auto &, const auto &) { return true; }),
                                                   ", ")));
    for (std::string &name : found)
      if (std::ranges::find(group.parameters, name) == group.parameters.end())
        group.parameters.push_back(std::move(name));
  }
  if (!inside.has("params"))
    reader.error(path, "a group of learning rates needs params, a list of names of parameters");
  addGroup(reader, path, std::move(group));
}

/// Imports Megatron's decoupled learning rate, of the token table and the output layer.
void importDecoupled(const RunReader &reader) {
  const char *key = "lr_schedule.decoupled_lr", *endKey = "lr_schedule.decoupled_min_lr";
  std::optional<double> peak = reader.number(key);
  if (!peak && reader.has(endKey))
    reader.error(endKey, "decoupled_min_lr needs decoupled_lr");
  if (!peak)
    return;
  RateGroup group{{}, reader.config().schedule};
  group.schedule.set_peak(*peak);
  group.schedule.set_end(reader.number(endKey).value_or(group.schedule.end()));
  if (*peak <= 0)
    return reader.error(key, fmt::format("decoupled_lr is {}, must be above 0", *peak));
  if (group.schedule.kind() != "constant" && (group.schedule.end() < 0 || group.schedule.end() > *peak))
    return reader.error(
        reader.has(endKey) ? endKey : key,
        fmt::format("decoupled_min_lr ({}) must be 0 to decoupled_lr ({})", group.schedule.end(), *peak));
  group.parameters = trainedNames(reader.config().model, [](const auto &, const ParameterDescription &parameter) {
    return std::ranges::find(parameter.dims, "vocab") != parameter.dims.end();
  });
  addGroup(reader, key, std::move(group));
}

} // namespace

void importSchedules(const RunReader &reader) {
  const YamlNode *grouped = reader.find("grouped_lr_schedule.grouped");
  bool hasDefault = reader.has("grouped_lr_schedule.default");
  if (hasDefault && reader.has("lr_schedule"))
    reader.error("grouped_lr_schedule.default",
                 "lr_schedule and grouped_lr_schedule.default contradict each other, give "
                 "one");
  importSchedule(reader, hasDefault ? "grouped_lr_schedule.default." : "lr_schedule.", reader.config().schedule);
  importDecoupled(reader);
  for (size_t i = 0; grouped && i < grouped->items.size(); ++i)
    if (grouped->items[i]->isMap())
      importGroup(reader, fmt::format("grouped_lr_schedule.grouped[{}]", i), *grouped->items[i]);
}

} // namespace espalier
