#include "runtime/checkpoint/convert/foreign_weights.h"

#include "runtime/checkpoint/convert/dequantized.h"
#include "runtime/checkpoint/convert/text_model.h"

#include <fmt/format.h>

namespace espalier::rt {

ForeignWeights::ForeignWeights(ConvertedModel model, WeightSystem system, const std::filesystem::path &source)
    : converted(std::move(model)) {
  std::vector<HeldTensors> held;
  if (system == WeightSystem::Hf) {
    weights = textModelOf(dequantized(openHfFolder(source)), theNote);
    NameMap names = converted.names("hf");
    held.push_back({weights.get(), names.tensors({0, converted.model.layers, true, true, {}}, 0, {})});
    theParameters = parametersOf(names, std::move(held));
    return;
  }
  megatron = openMegatron(source);
  NameMap names = converted.names(megatron.isLegacy ? "legacy" : "mcore");
  theParameters = parametersOf(names, heldTensors(megatron, names));
}

void ForeignWeights::printNote(const std::filesystem::path &source) const {
  if (!theNote.empty())
    fmt::print(stderr, "{}: note: {}\n", source.string(), theNote);
}

} // namespace espalier::rt
