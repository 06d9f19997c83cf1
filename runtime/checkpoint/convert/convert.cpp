// A path is told by what its writers never leave out.
#include "runtime/checkpoint/convert/convert.h"

#include "runtime/checkpoint/commit.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

bool hasEntry(const Path &folder, const std::function<bool(const std::string &)> &isIt) {
  std::error_code error;
  return std::ranges::any_of(std::filesystem::directory_iterator(folder, error),
                             [&](const auto &entry) { return isIt(entry.path().filename().string()); });
}

/// As transformers calls it.
std::string typeWord(pb::DataType type) {
  return type == pb::BF16 ? "bfloat16" : type == pb::F16 ? "float16" : "float32";
}

} // namespace

WeightSystem systemAt(const Path &path) {
  auto isFile = [&](const char *name) { return std::filesystem::exists(path / name); };
  if (path.extension() == ".ckpt" || hasEntry(path, [](const std::string &name) { return name.ends_with(".ckpt"); }))
    throw PlanError(fmt::format("{}: MindSpore's .ckpt files are not read; export them as safetensors "
                                "(load_ckpt_format of MindFormers 1.3 and later) with the names of transformers",
                                path.string()));
  if (!std::filesystem::is_directory(path))
    throw PlanError(fmt::format("{}: is no folder", path.string()));
  if (isFile(".metadata") || isFile("metadata.json") ||
      hasEntry(path, [](const std::string &name) { return name.ends_with(".distcp"); }))
    throw PlanError(
        fmt::format("{}: a checkpoint of torch's distributed format is not read; let Megatron write it with "
                    "--ckpt-convert-format torch",
                    path.string()));
  if (isFile(manifestName) || !checkpointNames(path).empty())
    return WeightSystem::Espalier;
  if (isFile("latest_checkpointed_iteration.txt") ||
      hasEntry(path, [](const std::string &name) { return name.starts_with("mp_rank_"); }))
    return WeightSystem::Megatron;
  if (isFile("config.json") || hasEntry(path, [](const std::string &name) {
        return name.ends_with(".safetensors") || name.starts_with("pytorch_model");
      }))
    return WeightSystem::Hf;
  throw PlanError(fmt::format("{}: holds no weights that are known: no checkpoint of Espalier, no folder of "
                              "transformers, no mp_rank_* of Megatron",
                              path.string()));
}

NameMap ConvertedModel::names(const std::string &system) const {
  auto found = rules.find(system);
  if (found == rules.end())
    throw PlanError(
        fmt::format("{}: has no names of weights for {}: `weights: {}:` would say them", place, model.name, system));
  return NameMap(model, found->second, fmt::format("{}: weights: {}", place, system));
}

Path convertToNative(const ConvertedModel &model, WeightSystem from, const Path &source, const Path &target) {
  if (from == WeightSystem::Hf) {
    NameMap names = model.names("hf");
    std::unique_ptr<WeightSource> weights = openHfFolder(source);
    std::vector<HeldTensors> held;
    held.push_back({weights.get(), names.tensors({0, model.model.layers, true, true, {}}, 0, {})});
    return writeNative(model.model, target, parametersOf(names, std::move(held)));
  }
  MegatronFolder folder = openMegatron(source);
  NameMap names = model.names(folder.isLegacy ? "legacy" : "mcore");
  return writeNative(model.model, target, parametersOf(names, heldTensors(folder, names)));
}

void convertToHf(const ConvertedModel &model, const Path &source, const Path &target, HfExport options,
                 const std::function<std::string(const std::string &)> &config) {
  NameMap names = model.names("hf");
  NativeSource native(model.model, source);
  options.config = config(typeWord(native.type(0)));
  std::vector<ForeignTensor> tensors = names.tensors({0, model.model.layers, true, true, {}}, 0, {});
  writeHfFolder(target, tensorsOf(names, native, tensors, /*writesTied=*/false), options);
}

void convertToMegatron(const ConvertedModel &model, const Path &source, const Path &target, const std::string &names,
                       const MegatronExport &options) {
  NativeSource native(model.model, source);
  writeMegatron(target, model.names(names), native, options);
}

} // namespace espalier::rt
