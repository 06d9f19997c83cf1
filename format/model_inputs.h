// The inputs of a training step, which all have the shape [batch, seq], and the names of modules that predict further
// tokens.
#pragma once

#include <string>
#include <string_view>

namespace espalier::rt {

/// An input of a sample.
struct ModelInput {
  std::string_view name;
  bool isNumber = false;       ///< f32; all others are i32
  int further = 0;             ///< tokens between this input and the one that its name begins with
  bool isAlwaysPlaced = false; ///< whether a plan has memory for it even if no program reads it
};

/// The most modules that predict further tokens. Module K reads the labels and weights K tokens further, which are zero
/// where the sample or the document ends before.
inline constexpr int mostFurtherTokens = 4;

/// The inputs, in the order of their memory.
inline constexpr ModelInput modelInputs[] = {{"tokens", false, 0, true},
                                             {"positions", false, 0, true},
                                             {"labels", false, 0, true},
                                             {"loss_weights", true, 0, true},
                                             {"visible_from"},
                                             {"labels_1", false, 1},
                                             {"loss_weights_1", true, 1},
                                             {"labels_2", false, 2},
                                             {"loss_weights_2", true, 2},
                                             {"labels_3", false, 3},
                                             {"loss_weights_3", true, 3},
                                             {"labels_4", false, 4},
                                             {"loss_weights_4", true, 4}};

/// Returns the input of this name, or null.
constexpr const ModelInput *modelInput(std::string_view name) {
  for (const ModelInput &input : modelInputs)
    if (input.name == name)
      return &input;
  return nullptr;
}

/// The names of the parameters and values of module `module`, which are in the segment of the head, begin with this.
inline std::string furtherPrefix(int module) { return "mtp" + std::to_string(module) + "_"; }

/// Returns whether a parameter, "head.mtp1_norm_weight", belongs to a module that predicts further tokens.
inline bool isOfFurtherModule(std::string_view parameter) {
  std::string_view name = parameter.substr(parameter.find('.') + 1);
  for (int module = 1; module <= mostFurtherTokens; ++module)
    if (name.starts_with(furtherPrefix(module)))
      return true;
  return false;
}

} // namespace espalier::rt
