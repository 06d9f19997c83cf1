// Adds low-rank adapters (LoRA, Hu et al., ICLR 2022) to a model description. A product y = x W becomes
//   y = x W + (alpha / rank) (dropout(x) A) B
// with new parameters A [in, rank] and B [rank, out]. All other parameters become frozen.
#pragma once

#include "compiler/import/model/adapter_config.h"
#include "compiler/import/model/model_description.h"
#include "compiler/import/yaml/diagnostics.h"

#include <utility>

namespace espalier {

/// Name patterns and the parameters that they hold, as in the section `weights` of a model file.
using NamedParameters = std::vector<std::pair<std::string, std::string>>;

/// Adds an adapter to each selected matrix product, and freezes all other parameters. `weights` names modules by their
/// weights in transformers, and `modules` by their names in MindFormers. A module with several parameters has one
/// matrix A and a matrix B per parameter. A starts with normal values of the standard deviation 1 / sqrt(3 in), that of
/// peft's uniform values; B starts with zeros. Returns the names of the adapters' tensors in peft's files. Reports an
/// error if no module is selected, or if a module is selected in some layers only.
NamedParameters addAdapters(const AdapterConfig &config, const NamedParameters &weights, const NamedParameters &modules,
                            ModelDescription &model, Diagnostics &diagnostics);

} // namespace espalier
