#include "runtime/checkpoint/convert/foreign_weights.h"

namespace espalier::rt {

ForeignWeights::ForeignWeights(ConvertedModel model, WeightSystem system, const std::filesystem::path &source)
    : converted(std::move(model)) {
  std::vector<HeldTensors> held;
  if (system == WeightSystem::Hf) {
    weights = openHfFolder(source);
    NameMap names = converted.names("hf");
    held.push_back({weights.get(), names.tensors({0, converted.model.layers, true, true, {}}, 0, {})});
    theParameters = parametersOf(names, std::move(held));
    return;
  }
  megatron = openMegatron(source);
  NameMap names = converted.names(megatron.isLegacy ? "legacy" : "mcore");
  theParameters = parametersOf(names, heldTensors(megatron, names));
}

} // namespace espalier::rt
