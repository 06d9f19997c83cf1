// The names of tensors are those of the rules `peft`, which the importer makes from the names of transformers.
#include "runtime/checkpoint/convert/peft.h"

#include "format/regex.h"
#include "messages/json_reason.h"
#include "runtime/checkpoint/convert/new_folder.h"
#include "runtime/checkpoint/json_text.h"
#include "runtime/comm/comm.h"
#include "runtime/files/atomic_file.h"
#include "runtime/kernels/element.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

constexpr const char *configName = "adapter_config.json", *weightsName = "adapter_model.safetensors";
constexpr const char *ending = ".lora_A.weight";
constexpr const char *prefix = "base_model.model.";
constexpr uint64_t mostConfigBytes = uint64_t(1) << 20;

/// Returns the modules with adapters as the rules name them: "model.layers.{i}.self_attn.q_proj".
std::vector<std::string> adaptedModules(const ConvertedModel &model) {
  std::vector<std::string> modules;
  if (auto rules = model.rules.find("peft"); rules != model.rules.end())
    for (const auto &[pattern, holds] : rules->second)
      if (pattern.ends_with(ending))
        modules.push_back(pattern.substr(std::string(prefix).size(),
                                         pattern.size() - std::string(prefix).size() - std::string(ending).size()));
  return modules;
}

/// Returns the modules as peft's target_modules selects them, by the end of their names: the last component, or all
/// components after the layer if another module without adapter has the same last component.
std::vector<std::string> targetModules(const ConvertedModel &model) {
  std::vector<std::string> modules = adaptedModules(model);
  std::set<std::string> targets;
  for (const std::string &module : modules) {
    std::string last = module.substr(module.rfind('.') + 1);
    bool isShared = std::ranges::any_of(model.rules.at("hf"), [&](const NameRule &rule) {
      const std::string suffix = ".weight", &pattern = rule.first;
      return pattern.ends_with("." + last + suffix) &&
             std::ranges::count(modules, pattern.substr(0, pattern.size() - suffix.size())) == 0;
    });
    size_t layer = module.rfind("{i}.");
    targets.insert(isShared && layer != std::string::npos ? module.substr(layer + 4) : last);
  }
  return {targets.begin(), targets.end()};
}

/// Returns whether the weights have the layout of Conv1D, [in, out]: the first axis has the dimensions of A.
bool isConv1d(const ConvertedModel &model) {
  for (const auto &[name, matrices] : model.adapters.products) {
    auto isNamed = [](const std::string &wanted) {
      return [&](const WeightParameter &one) { return one.name == wanted; };
    };
    auto a = std::ranges::find_if(model.adapters.model.parameters, isNamed(matrices.first));
    auto weight = std::ranges::find_if(model.model.parameters, isNamed(name));
    for (const auto &[pattern, holds] : model.rules.at("hf")) {
      size_t equals = holds.find('=');
      std::string own = " " + holds.substr(0, equals) + " ";
      if (own.find(" " + weight->local + " ") == std::string::npos || !pattern.ends_with(".weight"))
        continue;
      std::string layout = equals == std::string::npos ? weight->dims.front() : holds.substr(equals + 1);
      size_t begin = layout.find_first_not_of(" (|"), end = layout.find_first_of(" )*", begin);
      return std::ranges::count(a->dims, layout.substr(begin, end - begin)) > 0;
    }
  }
  return false;
}

/// Returns the model of the adapters. Throws PlanError if there are none.
const WeightModel &adaptersOf(const ConvertedModel &model) {
  if (model.adapters.model.parameters.empty())
    throw PlanError(fmt::format("{}: the run file has no adapters: pet_config of model_config adds them", model.place));
  return model.adapters.model;
}

/// Returns the naming rules. Throws PlanError if transformers has no module for an adapter.
NameMap namesOf(const ConvertedModel &model) {
  const WeightModel &adapters = adaptersOf(model);
  auto rules = model.rules.find("peft");
  std::string held = " ";
  if (rules != model.rules.end())
    for (const auto &[pattern, holds] : rules->second)
      held += holds + " ";
  for (const WeightParameter &parameter : adapters.parameters)
    if (held.find(" " + parameter.local + " ") == std::string::npos)
      throw PlanError(fmt::format("{}: peft has no name for '{}', because transformers has no module of that product "
                                  "alone; let target_modules name modules of transformers",
                                  model.place, parameter.local));
  return NameMap(adapters, rules->second, fmt::format("{}: weights: peft", model.place));
}

nlohmann::json configOf(const ConvertedModel &model, const std::string &base) {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base.empty() ? nlohmann::json(nullptr) : nlohmann::json(base)},
          {"inference_mode", true},
          {"r", model.adapters.rank},
          {"lora_alpha", model.adapters.alpha},
          {"lora_dropout", model.adapters.dropout},
          {"target_modules", targetModules(model)},
          {"fan_in_fan_out", isConv1d(model)},
          {"bias", "none"},
          {"use_rslora", false},
          {"use_dora", false},
          {"init_lora_weights", true},
          {"layers_to_transform", nullptr},
          {"modules_to_save", nullptr},
          {"rank_pattern", nlohmann::json::object()},
          {"alpha_pattern", nlohmann::json::object()}};
}

/// Returns whether a value of adapter_config.json leaves its feature out.
bool isUnset(const nlohmann::json &value) {
  return value.is_null() || value == false || value == "none" ||
         ((value.is_object() || value.is_array()) && value.empty());
}

/// The values of a map such as rank_pattern, whose keys are regular expressions for the ends of modules' names.
class Patterns {
public:
  Patterns(const nlohmann::json &config, const char *key, const Path &file) {
    const nlohmann::json map = config.value(key, nlohmann::json::object());
    for (const auto &[pattern, value] : map.items())
      patterns.emplace_back(std::make_unique<Regex>(file, fmt::format("^(?:.*\\.)?(?:{})$", pattern)), value);
  }
  /// Returns the value of the first pattern that a module's name matches, as peft does.
  double of(const std::string &module, double otherwise) const {
    for (const auto &[pattern, value] : patterns)
      if (pattern->find(module, 0).first != std::string::npos)
        return value;
    return otherwise;
  }

private:
  std::vector<std::pair<std::unique_ptr<Regex>, double>> patterns;
};

/// Returns the modules of the adapters, with the numbers of layers.
std::vector<std::string> modulesOf(std::span<const ForeignTensor> tensors) {
  std::vector<std::string> modules;
  for (const ForeignTensor &tensor : tensors)
    if (const std::string &name = tensor.names.front(); name.ends_with(ending))
      modules.push_back(name.substr(std::string(prefix).size(),
                                    name.size() - std::string(prefix).size() - std::string(ending).size()));
  return modules;
}

/// Checks that each module has the rank and the scale of the model's adapters, which have one of each.
void checkRanks(const ConvertedModel &model, const nlohmann::json &config, std::span<const ForeignTensor> tensors,
                const Path &file) {
  Patterns ranks(config, "rank_pattern", file), alphas(config, "alpha_pattern", file);
  auto rank = config.at("r").get<double>(), alpha = config.at("lora_alpha").get<double>();
  bool isRankStabilized = config.value("use_rslora", false);
  for (const std::string &module : modulesOf(tensors)) {
    double ownRank = ranks.of(module, rank), ownAlpha = alphas.of(module, alpha);
    auto place = [&](const char *key, double own, double common) {
      return own == common ? file.string() : fmt::format("{}: {}: {}", file.string(), key, module);
    };
    const char *why = "; Espalier's adapters have one rank and one alpha";
    if (ownRank != static_cast<double>(model.adapters.rank))
      throw PlanError(fmt::format("{}: has rank {}, lora_rank of the run file is {}{}",
                                  place("rank_pattern", ownRank, rank), ownRank, model.adapters.rank,
                                  ownRank == rank ? "" : why));
    // rsLoRA scales A B by alpha / sqrt(rank), which is LoRA with another alpha. The run file has it with few digits.
    double scaled = ownAlpha * (isRankStabilized ? std::sqrt(ownRank) : 1);
    if (std::abs(scaled - model.adapters.alpha) > (isRankStabilized ? 1e-5 * std::abs(scaled) : 0))
      throw PlanError(fmt::format("{}: has lora_alpha {}{}, the run file has {}{}",
                                  place("alpha_pattern", ownAlpha, alpha), scaled,
                                  isRankStabilized ? " as LoRA without use_rslora counts" : "", model.adapters.alpha,
                                  ownAlpha == alpha ? "" : why));
  }
}

/// Checks that adapter_config.json describes adapters of the model's kind, rank and scale.
void checkConfig(const ConvertedModel &model, std::span<const ForeignTensor> tensors, const Path &file) {
  auto refuse = [&](const std::string &why) { throw PlanError(fmt::format("{}: {}", file.string(), why)); };
  nlohmann::json config;
  try {
    config = parseShallow(readText(file, mostConfigBytes));
    if (!config.is_object())
      refuse("holds no map");
    std::string type = config.value("peft_type", "");
    if (type != "LORA")
      refuse(fmt::format("its peft_type is '{}', only LORA is read", type));
    checkRanks(model, config, tensors, file);
    if (config.contains("use_dora") && !isUnset(config["use_dora"]))
      refuse(
          "use_dora is true: DoRA learns the length of each column of W + A B, which is no sum of adapter and weight; "
          "merge it with peft (merge_and_unload) and convert the weights");
    if (config.contains("modules_to_save") && !isUnset(config["modules_to_save"]))
      refuse(fmt::format("modules_to_save is {}: peft trained these modules beside the adapters, and a run with "
                         "pet_config trains adapters alone; merge it with peft (merge_and_unload) and convert the "
                         "weights",
                         config["modules_to_save"].dump().substr(0, 80)));
    for (const char *key : {"bias", "layers_to_transform"})
      if (config.contains(key) && !isUnset(config[key]))
        refuse(fmt::format("{} is {}, which is not built", key, config[key].dump().substr(0, 80)));
  } catch (const nlohmann::json::exception &problem) {
    refuse(fmt::format("damaged: {}", jsonReason(problem)));
  }
}

/// Checks that the file has adapters of the model's modules.
void checkModules(const WeightSource &weights, std::span<const ForeignTensor> tensors, const Path &folder) {
  std::set<std::string> known;
  for (const ForeignTensor &tensor : tensors) {
    known.insert(tensor.names.begin(), tensor.names.end());
    if (std::ranges::none_of(tensor.names, [&](const std::string &name) { return weights.tensors().contains(name); }))
      throw PlanError(fmt::format("{}: has no tensor '{}', whose product target_modules of the run file selects",
                                  folder.string(), tensor.names.front()));
  }
  for (const auto &[name, tensor] : weights.tensors())
    if (!known.contains(name))
      throw PlanError(fmt::format("{}: tensor '{}' belongs to no product that target_modules of the run file selects",
                                  weights.placeOf(name), name));
}

/// Distances in elements between neighbours along each dimension of W.
std::vector<int64_t> stridesAlong(const std::vector<std::string> &dims, const WeightParameter &matrix) {
  std::vector<int64_t> strides;
  for (const std::string &dim : dims) {
    auto at = std::ranges::find(matrix.dims, dim);
    int64_t stride = at == matrix.dims.end() ? 0 : 1;
    for (auto i = static_cast<size_t>(at - matrix.dims.begin()) + 1; i < matrix.sizes.size(); ++i)
      stride *= matrix.sizes[i];
    strides.push_back(at == matrix.dims.end() ? 0 : stride);
  }
  return strides;
}

std::vector<float> floatsOf(const std::vector<std::byte> &bytes, pb::DataType type) {
  std::vector<float> values(bytes.size() / elementBytes(type));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = loadElement(type, bytes.data(), static_cast<int64_t>(i));
  return values;
}

/// One matrix of an adapter, in f32.
struct Matrix {
  const WeightParameter &parameter;
  std::vector<float> values;
};

/// Adds scale * A B to the values of W, which has the dimensions of `weight`.
void addProduct(const WeightParameter &weight, const Matrix &a, const Matrix &b, float scale, std::vector<float> &w) {
  const std::vector<std::string> rankDims = {"lora_rank"};
  std::vector<int64_t> alongA = stridesAlong(weight.dims, a.parameter), alongB = stridesAlong(weight.dims, b.parameter);
  int64_t stepA = stridesAlong(rankDims, a.parameter)[0], stepB = stridesAlong(rankDims, b.parameter)[0];
  size_t last = weight.sizes.size() - 1;
  int64_t ranks = a.parameter.sizes.back(), columns = weight.sizes[last];
  std::vector<int64_t> index(weight.sizes.size(), 0);
  std::vector<float> row(static_cast<size_t>(columns));
  for (size_t first = 0; first < w.size(); first += row.size()) {
    int64_t atA = 0, atB = 0;
    for (size_t d = 0; d < last; ++d) {
      atA += index[d] * alongA[d];
      atB += index[d] * alongB[d];
    }
    std::ranges::fill(row, 0.0f);
    for (int64_t r = 0; r < ranks; ++r)
      for (int64_t i = 0; i < columns; ++i)
        row[i] += a.values[atA + r * stepA + i * alongA[last]] * b.values[atB + r * stepB + i * alongB[last]];
    for (int64_t i = 0; i < columns; ++i)
      w[first + i] += scale * row[i];
    for (size_t d = last; d-- > 0 && ++index[d] == weight.sizes[d];)
      index[d] = 0;
  }
}

} // namespace

PeftAdapters::PeftAdapters(const ConvertedModel &model, const Path &folder) {
  NameMap names = namesOf(model);
  if (!std::filesystem::exists(folder / configName))
    throw PlanError(fmt::format("{}: has no {}, which tells rank and scale", folder.string(), configName));
  std::vector<ForeignTensor> tensors = names.tensors({0, model.model.layers, true, true, {}}, 0, {});
  checkConfig(model, tensors, folder / configName);
  weights = openHfWeights(folder, "adapter_model");
  checkModules(*weights, tensors, folder);
  std::vector<HeldTensors> held;
  held.push_back({weights.get(), std::move(tensors)});
  theParameters = parametersOf(names, std::move(held));
}

void writePeftFolder(const ConvertedModel &model, const Path &source, const Path &target, const std::string &base,
                     const std::vector<SideFile> &files) {
  NameMap names = namesOf(model);
  NativeSource native(model.adapters.model, source, &model.model);
  std::vector<ForeignTensor> tensors = names.tensors({0, model.model.layers, true, true, {}}, 0, {});
  std::vector<WrittenTensor> written = tensorsOf(names, native, tensors, /*writesTied=*/false);
  std::ranges::sort(written, {}, &WrittenTensor::name);
  NewFolder folder(target);
  writeSafetensorsInTurn(folder.path() / weightsName, written, {{"format", "pt"}});
  writeWhole(folder.path() / configName, configOf(model, base).dump(2) + "\n");
  for (const SideFile &file : files)
    writeWhole(folder.path() / file.name, file.bytes);
  folder.commit();
}

std::string baseModelNameOf(const Path &weights) {
  std::error_code error;
  if (weights.empty() || !std::filesystem::exists(weights / "config.json", error))
    return "";
  Path folder = std::filesystem::absolute(weights / "").lexically_normal().parent_path();
  std::string repository = folder.parent_path().parent_path().filename().string(), mark = "models--";
  if (folder.parent_path().filename() != "snapshots" || !repository.starts_with(mark))
    return folder.string();
  std::string name = repository.substr(mark.size());
  if (size_t dashes = name.find("--"); dashes != std::string::npos)
    name.replace(dashes, 2, "/");
  return name;
}

MergedSource::MergedSource(const ConvertedModel &model, const Path &path)
    : NativeSource(model.model, path, &model.adapters.model), converted(model),
      adapters(adaptersOf(model), path, &model.model) {}

std::shared_ptr<const std::vector<std::byte>> MergedSource::read(size_t parameter) const {
  auto plain = NativeSource::read(parameter);
  const WeightParameter &weight = converted.model.parameters[parameter];
  auto product = converted.adapters.products.find(weight.name);
  if (product == converted.adapters.products.end())
    return plain;
  const std::vector<WeightParameter> &matrices = converted.adapters.model.parameters;
  auto matrix = [&](const std::string &name) {
    auto at = static_cast<size_t>(std::ranges::find(matrices, name, &WeightParameter::name) - matrices.begin());
    return Matrix{matrices[at], floatsOf(*adapters.read(at), adapters.type(at))};
  };
  std::vector<float> values = floatsOf(*plain, type(parameter));
  auto scale = static_cast<float>(converted.adapters.alpha / static_cast<double>(converted.adapters.rank));
  addProduct(weight, matrix(product->second.first), matrix(product->second.second), scale, values);
  auto merged = std::make_shared<std::vector<std::byte>>(plain->size());
  for (size_t i = 0; i < values.size(); ++i)
    storeElement(type(parameter), merged->data(), static_cast<int64_t>(i), values[i]);
  return merged;
}

} // namespace espalier::rt
