// The labels of modules that predict further tokens (multi-token prediction, DeepSeek-AI 2024).
#pragma once

#include <cstddef>
#include <span>

namespace espalier::rt {

/// Fills the labels and weights of module `further` of one sample: at each position those that stand `further` tokens
/// later. Both are zero where the sample ends before, and where the token that the module reads there belongs to
/// another document; `visibleFrom` has the first token of each position's document. The weights are scaled so that they
/// have the same sum as `weights`: the module's loss is then a mean over its own tokens, as in Megatron-LM.
template <typename Label, typename Weight, typename Place>
void fillFurther(int further, std::span<const Label> labels, std::span<const Weight> weights,
                 std::span<const Place> visibleFrom, std::span<Label> furtherLabels, std::span<Weight> furtherWeights) {
  Weight all = 0, counted = 0;
  for (size_t at = 0; at < labels.size(); ++at) {
    size_t from = at + further;
    bool isInside = from < labels.size() && visibleFrom[from] <= static_cast<Place>(at);
    furtherLabels[at] = isInside ? labels[from] : 0;
    furtherWeights[at] = isInside ? weights[from] : 0;
    all += weights[at];
    counted += furtherWeights[at];
  }
  for (Weight &weight : furtherWeights)
    weight *= counted > 0 ? all / counted : 0;
}

} // namespace espalier::rt
