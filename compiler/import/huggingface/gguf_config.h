// The model of a GGUF file as a config.json of transformers. The section `weights: gguf_keys:` of a model file names
// llama.cpp's architecture and maps its keys.
#pragma once

#include <map>
#include <set>
#include <string>

namespace espalier {

/// The description of a model in a GGUF file.
struct GgufModel {
  std::string architecture;              ///< general.architecture
  std::map<std::string, double> numbers; ///< the keys with numbers
  std::set<std::string> lists;           ///< the keys with lists
  std::set<std::string> tensors;
  int64_t vocab = 0;       ///< rows of the token table
  std::string dtype;       ///< of the matrices, as transformers names it
  std::string ropeScaling; ///< `rope_scaling` as JSON, or empty
};

/// Returns the config.json. Throws PlanError if no model file is for the architecture, or if a key says what the model
/// cannot be.
std::string ggufConfigText(const std::string &file, const GgufModel &model);

} // namespace espalier
