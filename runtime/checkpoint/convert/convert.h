// Conversions between checkpoints of Espalier and of other systems: recognizes the system of a path, and converts both
// ways.
#pragma once

#include "runtime/checkpoint/convert/hf.h"
#include "runtime/checkpoint/convert/megatron.h"

namespace espalier::rt {

enum class WeightSystem { Espalier, Hf, Megatron };

/// Returns the system whose weights lie at a path. Throws PlanError, with a way out, for formats that are unknown or
/// not read.
WeightSystem systemAt(const std::filesystem::path &path);
/// Throws PlanError if the folder holds a checkpoint in torch's distributed format.
void refuseDistributed(const std::filesystem::path &folder);

/// A model and its naming rules, keyed "hf", "mcore" and "legacy" as in its model file.
struct ConvertedModel {
  WeightModel model;
  std::map<std::string, std::vector<NameRule>> rules;
  std::string place; ///< the model file, for error messages

  /// Throws PlanError if the model file has no rules for `system`.
  NameMap names(const std::string &system) const;
};

/// Return the model of a plan and its naming rules. Throw PlanError if the plan does not contain them.
ConvertedModel convertedModel(const pb::Plan &plan);
ConvertedModel convertedModel(const pb::WeightNames &names, const std::string &model);

/// Converts another system's weights into a checkpoint without optimizer state. Returns its folder.
std::filesystem::path convertToNative(const ConvertedModel &model, WeightSystem from,
                                      const std::filesystem::path &source, const std::filesystem::path &target);

/// Writes a Hugging Face folder. `config` returns the text of config.json for a weight type ("bfloat16").
void convertToHf(const ConvertedModel &model, const std::filesystem::path &source, const std::filesystem::path &target,
                 HfExport options, const std::function<std::string(const std::string &type)> &config);

/// Writes a Megatron-LM checkpoint with the naming rules `names`: "mcore" or "legacy".
void convertToMegatron(const ConvertedModel &model, const std::filesystem::path &source,
                       const std::filesystem::path &target, const std::string &names, const MegatronExport &options);

} // namespace espalier::rt
