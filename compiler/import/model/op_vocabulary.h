// Lists the ops that a model file may use, with their number of inputs and their attributes. configs/README.md defines
// their meaning.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

struct OpDescription; // model_description.h

/// An attribute of an op.
struct OpAttribute {
  std::string_view name;
  bool isString = false;
  /// The default value. An attribute without a default is required.
  std::optional<double> defaultNumber = std::nullopt;
  /// Whether a description omits the attribute if it has its default, which changes nothing: 0 if not given, the empty
  /// text for a string. Plans of models that do not use the attribute then stay the same.
  bool isOption = false;
};

/// The signature of an op kind.
struct OpSignature {
  std::string_view kind;
  int leastInputs, mostInputs;
  std::span<const OpAttribute> attributes;
  int outputs = 1;
};

/// Returns the signatures of all ops.
std::span<const OpSignature> opVocabulary();

/// Returns the signature of an op kind, or null.
const OpSignature *opSignature(std::string_view kind);

/// Returns a number among the attributes of an op, or the attribute's default if the description omits it.
double number(const OpDescription &op, std::string_view name);

} // namespace espalier
