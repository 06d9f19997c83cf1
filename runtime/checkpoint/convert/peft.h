// A folder in the format of Hugging Face's peft: the low-rank adapters (LoRA) of a model, without its other weights.
// adapter_config.json describes them, and adapter_model.safetensors or adapter_model.bin has the matrices A and B.
#pragma once

#include "runtime/checkpoint/convert/convert.h"

namespace espalier::rt {

/// The adapters of a folder, read when they are requested.
class PeftAdapters {
public:
  /// Throws PlanError if the folder's adapters differ from the model's in kind, rank, scale, modules or shapes. `model`
  /// must outlive the object.
  PeftAdapters(const ConvertedModel &model, const std::filesystem::path &folder);

  /// Returns the parameters in the order of `model.adapters.model`.
  const std::vector<NewParameter> &parameters() const { return theParameters; }

private:
  std::unique_ptr<WeightSource> weights;
  std::vector<NewParameter> theParameters;
};

/// Writes the adapters of a checkpoint as a folder of peft, completely or not at all. `base` is the name or folder of
/// the weights beside which they lie, for transformers; it may be empty. The folder gets the files `files`, too. Throws
/// PlanError.
void writePeftFolder(const ConvertedModel &model, const std::filesystem::path &source,
                     const std::filesystem::path &target, const std::string &base = "",
                     const std::vector<SideFile> &files = {});

/// Returns how transformers finds weights: the name of a model in the hub's cache, or the path of a folder of
/// transformers. Returns nothing for other weights.
std::string baseModelNameOf(const std::filesystem::path &weights);

/// A checkpoint's parameters with their adapters added: W + (alpha / rank) A B, computed in f32 and rounded once.
class MergedSource : public NativeSource {
public:
  /// Throws PlanError if the checkpoint has no adapters.
  MergedSource(const ConvertedModel &model, const std::filesystem::path &path);

  std::shared_ptr<const std::vector<std::byte>> read(size_t parameter) const override;

private:
  const ConvertedModel &converted;
  NativeSource adapters;
};

} // namespace espalier::rt
