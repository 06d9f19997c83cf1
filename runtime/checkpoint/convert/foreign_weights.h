// The weights of another system's folder as our parameters, made one at a time.
#pragma once

#include "runtime/checkpoint/convert/convert.h"

namespace espalier::rt {

class ForeignWeights {
public:
  /// `system` is not ours. Throws PlanError where a tensor is unknown, of another shape or missing.
  ForeignWeights(ConvertedModel model, WeightSystem system, const std::filesystem::path &source);
  ForeignWeights(const ForeignWeights &) = delete;

  const WeightModel &model() const { return converted.model; }
  /// In the model's order.
  const std::vector<NewParameter> &parameters() const { return theParameters; }

private:
  const ConvertedModel converted;
  std::unique_ptr<WeightSource> weights; ///< of transformers
  MegatronFolder megatron;
  std::vector<NewParameter> theParameters; ///< made of these
};

} // namespace espalier::rt
