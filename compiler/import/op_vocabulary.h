// The ops that a model file may use: how many inputs, and which attributes. Meanings are in
// configs/README.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

struct OpAttribute {
  std::string_view name;
  bool isString = false;
  /// Value when the model file gives none; without one the attribute is required.
  std::optional<double> defaultNumber = std::nullopt;
};

struct OpSignature {
  std::string_view kind;
  int leastInputs, mostInputs;
  std::span<const OpAttribute> attributes;
  int outputs = 1;
};

std::span<const OpSignature> opVocabulary();

/// The signature of a kind, or null.
const OpSignature *opSignature(std::string_view kind);

/// Inputs of the whole model, readable in any segment; each [batch, seq].
std::span<const std::string_view> modelInputs();

} // namespace espalier
