// Parses Megatron's --hybrid-layer-pattern. Example: "M-M*|M-ME" has eight layers on two stages: Mamba-2 mixers (M),
// attention (*), MLPs (-) and experts (E).
#pragma once

#include "compiler/import/model/model_description.h"

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// The flag of Megatron's main branch. Older scripts call it --hybrid-override-pattern.
inline constexpr const char *hybridPatternFlag = "--hybrid-layer-pattern";

/// The layers of a pattern. `fault` is the reason why the pattern is not supported, or empty.
struct HybridPattern {
  std::string letters;         ///< one of M, *, - and E for each layer
  std::vector<int> chunkSizes; ///< the layers of each chunk in model order; one chunk if the pattern has no borders
  std::string fault;

  bool has(char letter) const { return letters.find(letter) != std::string::npos; }
};

/// Returns the kind of a letter's layer, as nemotron_h's `layers_block_type` names it. Empty for other letters.
std::string_view hybridKind(char letter);

/// Parses a pattern.
HybridPattern readHybridPattern(const std::string &text);

/// Returns the letters of the parts of each kind of segment, one part behind the other, such as M, *- or GE (G: a gated
/// delta net). Empty for a segment of other parts.
std::vector<std::string> hybridParts(const ModelDescription &model);

} // namespace espalier
