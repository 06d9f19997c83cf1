// Writes weights for transformers' models with the formula of transformers_reference.py.
#pragma once

#include "runtime/checkpoint/convert/convert.h"
#include "runtime/train/initial_value.h"

#include <filesystem>

namespace espalier {

/// Writes the tensors of a model that `names` lists.
inline void writeFormulaTensors(const rt::NameMap &names, const std::filesystem::path &file) {
  std::vector<rt::WrittenTensor> tensors;
  for (const rt::ForeignTensor &tensor : names.tensors({0, names.model().layers, true, true, {}}, 0, {}))
    if (!tensor.isDerived && !tensor.isTied)
      tensors.push_back({tensor.names.front(), rt::pb::F32, tensor.shape, [tensor] {
                           std::vector<float> values(rt::tensorBytes(tensor.shape, rt::pb::F32) / 4);
                           for (size_t i = 0; i < values.size(); ++i)
                             values[i] = static_cast<float>(
                                 rt::initialValue(42, tensor.names.front(), rt::pb::Initialization::NORMAL, 0.3, i));
                           auto bytes = std::as_bytes(std::span(values));
                           return std::vector<std::byte>(bytes.begin(), bytes.end());
                         }});
  std::filesystem::create_directories(file.parent_path());
  rt::writeSafetensorsInTurn(file, tensors, {{"format", "pt"}});
}

/// Writes model.safetensors in `there`.
inline void writeFormulaWeights(const rt::ConvertedModel &converted, const std::filesystem::path &there) {
  writeFormulaTensors(converted.names("hf"), there / "model.safetensors");
}

} // namespace espalier
