// Conversions between our checkpoints and those of other systems: which one a path is, and each direction in one call.
#pragma once

#include "runtime/checkpoint/convert/hf.h"
#include "runtime/checkpoint/convert/megatron.h"

namespace espalier::rt {

enum class WeightSystem { Espalier, Hf, Megatron, Peft, Dcp, Gguf };

/// What lies at a path. Throws PlanError, with the way out, for what is known and not read, and for what is not known.
WeightSystem systemAt(const std::filesystem::path &path);
/// Which program's weights, if not checkpoints of ours, a folder holds: "transformers", "Megatron". Empty if none are
/// known.
std::string foreignWeightsAt(const std::filesystem::path &folder);
/// Throws PlanError where the folder holds a distributed checkpoint of Megatron that is none of torch's (dcp.h).
void refuseDistributed(const std::filesystem::path &folder);

/// Returns the tokenizer's files that lie beside weights, or that a GGUF file holds.
std::vector<SideFile> tokenizerOfWeights(const std::filesystem::path &weights);

/// The low-rank adapters of a model.
struct ModelAdapters {
  WeightModel model; ///< only their parameters; none if the model has no adapters
  int64_t rank = 0;
  double alpha = 0, dropout = 0;
  /// The names of the matrices A and B by the name of the parameter beside which they lie.
  std::map<std::string, std::pair<std::string, std::string>> products;
};

/// A model with its rules: "hf", "mcore" and "legacy" as its model file has them.
struct ConvertedModel {
  WeightModel model; ///< without adapters
  std::map<std::string, std::vector<NameRule>> rules;
  std::string place; ///< the model file, for errors
  ModelAdapters adapters = {};

  /// Throws PlanError where the file has none of this name.
  NameMap names(const std::string &system) const;
};

/// The model of a plan, with the names that its model file has. Throws PlanError where the plan does not say them.
ConvertedModel convertedModel(const pb::Plan &plan);
ConvertedModel convertedModel(const pb::WeightNames &names, const std::string &model);

/// Reads another system's weights into a checkpoint of parameters only and returns its folder. Adapters of peft are
/// joined with the weights at `base`: a folder of transformers or Megatron, or a checkpoint. The checkpoint keeps
/// `kept`.
std::filesystem::path convertToNative(const ConvertedModel &model, WeightSystem from,
                                      const std::filesystem::path &source, const std::filesystem::path &target,
                                      const std::filesystem::path &base = {}, const std::vector<SideFile> &kept = {});

/// `config` gives the text of config.json for weights of a type ("bfloat16").
void convertToHf(const ConvertedModel &model, const std::filesystem::path &source, const std::filesystem::path &target,
                 HfExport options, const std::function<std::string(const std::string &type)> &config);

/// Writes a folder of torch.distributed.checkpoint with the names of transformers.
void convertToDcp(const ConvertedModel &model, const std::filesystem::path &source,
                  const std::filesystem::path &target);

void convertToMegatron(const ConvertedModel &model, const std::filesystem::path &source,
                       const std::filesystem::path &target, const std::string &names, const MegatronExport &options);

} // namespace espalier::rt
