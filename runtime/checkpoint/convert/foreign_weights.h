// Reads the weights of another system's folder as parameters of a model, one at a time.
#pragma once

#include "runtime/checkpoint/convert/convert.h"

namespace espalier::rt {

/// The parameters of a model, read from another system's folder.
class ForeignWeights {
public:
  /// `system` is not WeightSystem::Espalier. Throws PlanError if a tensor is unknown, missing or of another shape.
  ForeignWeights(ConvertedModel model, WeightSystem system, const std::filesystem::path &source);
  ForeignWeights(const ForeignWeights &) = delete;

  const WeightModel &model() const { return converted.model; }
  /// Says which tensors of the folder are left out, because they belong to other parts than the text model; empty if
  /// there are none.
  const std::string &note() const { return theNote; }
  /// Prints the note to standard error, if there is one.
  void printNote(const std::filesystem::path &source) const;
  /// Returns the parameters in the model's order.
  const std::vector<NewParameter> &parameters() const { return theParameters; }

private:
  const ConvertedModel converted;
  std::unique_ptr<WeightSource> weights; ///< unless they are Megatron's
  MegatronFolder megatron;
  std::string theNote;
  std::vector<NewParameter> theParameters; ///< read from `weights` or `megatron`
};

} // namespace espalier::rt
