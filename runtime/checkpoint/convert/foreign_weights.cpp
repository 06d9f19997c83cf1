#include "runtime/checkpoint/convert/foreign_weights.h"

#include "runtime/checkpoint/convert/dcp.h"
#include "runtime/checkpoint/convert/dequantized.h"
#include "runtime/checkpoint/convert/gguf_file.h"
#include "runtime/checkpoint/convert/text_model.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

/// Words before the names of weights, and first words of names that are no weights.
constexpr const char *prefixes[] = {"",           "model.", "module.",     "model.module.",
                                    "app.model.", "app.",   "state_dict.", "state.model."},
                     *otherParts[] = {"optim", "lr_scheduler", "dataloader", "train_state", "rng_state", "rerun_state"};

bool isWeight(const std::string &name) {
  return std::ranges::none_of(otherParts, [&](const char *part) { return name.starts_with(part); }) &&
         name.find("_extra_state") == std::string::npos;
}

/// The weights of a distributed checkpoint under the names of a system.
struct NamedWeights {
  std::unique_ptr<WeightSource> source;
  std::string system;
  size_t known = 0; ///< weights that the system names
};

/// Finds the system and the prefix that name the most weights.
NamedWeights nameWeights(const ConvertedModel &model, const std::filesystem::path &folder) {
  std::shared_ptr<const WeightSource> all = openDcp(folder);
  NamedWeights best;
  for (const char *system : {"hf", "mcore"}) {
    if (!model.rules.contains(system))
      continue;
    NameMap names = model.names(system);
    std::vector<ForeignTensor> wanted = names.tensors({0, model.model.layers, true, true, {}}, 0, {});
    for (const char *prefix : prefixes) {
      std::unique_ptr<WeightSource> source = withoutPrefix(all, prefix, isWeight);
      if (std::string(system) == "mcore")
        source = withoutStackedLayers(std::move(source), model.model.layers);
      auto isKnown = [&](const std::string &name) { return source->tensors().contains(name); };
      auto known = static_cast<size_t>(std::ranges::count_if(
          wanted, [&](const ForeignTensor &tensor) { return std::ranges::any_of(tensor.names, isKnown); }));
      if (known > best.known)
        best = {std::move(source), system, known};
    }
  }
  if (best.known == 0)
    throw PlanError(
        fmt::format("{}: the names of its {} tensors are neither those of transformers nor of Megatron core{}",
                    folder.string(), all->tensors().size(),
                    all->tensors().empty() ? "" : fmt::format("; the first is '{}'", all->tensors().begin()->first)));
  return best;
}

} // namespace

ForeignWeights::ForeignWeights(ConvertedModel model, WeightSystem system, const std::filesystem::path &source)
    : converted(std::move(model)) {
  std::vector<HeldTensors> held;
  if (system == WeightSystem::Hf) {
    weights = textModelOf(dequantized(openHfFolder(source)), theNote);
    NameMap names = converted.names("hf");
    held.push_back({weights.get(), names.tensors({0, converted.model.layers, true, true, {}}, 0, {})});
    theParameters = parametersOf(names, std::move(held));
    return;
  }
  if (system == WeightSystem::Dcp) {
    NamedWeights named = nameWeights(converted, *dcpFolderAt(source));
    weights = std::move(named.source);
    NameMap names = converted.names(named.system);
    auto shapeOf = [&](const std::string &name) -> std::optional<std::vector<int64_t>> {
      auto tensor = weights->tensors().find(name);
      return tensor == weights->tensors().end() ? std::nullopt : std::optional(tensor->second.shape);
    };
    bool isPadded = named.system == "mcore"; // the shapes tell the rows of the vocabulary
    held.push_back({weights.get(), names.tensors({0, converted.model.layers, true, true, {}}, 0,
                                                 isPadded ? NameMap::ShapeOf(shapeOf) : nullptr)});
    theParameters = parametersOf(names, std::move(held));
    return;
  }
  if (system == WeightSystem::Gguf) {
    if (!converted.rules.contains("gguf_keys"))
      throw PlanError(
          fmt::format("{}: llama.cpp's names of the weights are not known: a plan has them if its run file's "
                      "load_checkpoint ends with .gguf, and a model file under `weights: gguf:`",
                      source.string()));
    GgufRules rules = ggufRules(converted);
    weights = openGguf(source, rules.normsFromOne);
    NameMap names(converted.model, rules.tensors, fmt::format("{}: weights: gguf", converted.place));
    held.push_back({weights.get(), names.tensors({0, converted.model.layers, true, true, {}}, 0, {})});
    theParameters = parametersOf(names, std::move(held));
    return;
  }
  megatron = openMegatron(source);
  NameMap names = converted.names(megatron.isLegacy ? "legacy" : "mcore");
  theParameters = parametersOf(names, heldTensors(megatron, names));
}

void ForeignWeights::printNote(const std::filesystem::path &source) const {
  if (!theNote.empty())
    fmt::print(stderr, "{}: note: {}\n", source.string(), theNote);
}

} // namespace espalier::rt
