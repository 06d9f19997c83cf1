// Type-checked access to the fields of a tokenizer.json. Errors name the field.
#pragma once

#include "messages/data_error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {

/// The deepest supported nesting of steps; published files have two or three levels.
constexpr int deepestSequence = 16;

/// Returns object[name], or null if the field is absent.
inline const nlohmann::json &fieldOf(const nlohmann::json &object, const char *name) {
  static const nlohmann::json null;
  auto found = object.find(name);
  return found == object.end() ? null : *found;
}

/// Returns object[name] as T, or `fallback` if the field is absent or null. Throws DataError if the field has another
/// type.
template <typename T> T fieldOr(const std::string &file, const nlohmann::json &object, const char *name, T fallback) {
  auto found = object.find(name);
  if (found == object.end() || found->is_null())
    return fallback;
  bool fits = std::is_same_v<T, bool>          ? found->is_boolean()
              : std::is_same_v<T, std::string> ? found->is_string()
                                               : found->is_number_integer();
  if (!fits)
    throw DataError(file, fmt::format("field \"{}\" holds {}, another type is wanted", name, found->type_name()));
  return found->get<T>();
}

/// Returns object[name] as T. Throws DataError if the field is missing.
template <typename T> T requiredField(const std::string &file, const nlohmann::json &object, const char *name) {
  if (!object.is_object() || !object.contains(name))
    throw DataError(file, fmt::format("field \"{}\" is missing", name));
  return fieldOr<T>(file, object, name, T());
}

/// A "pattern" field, {"String": s} or {"Regex": s}.
struct HfPattern {
  std::string text;
  bool isRegex = false;
};
/// Reads a "pattern" field. Throws DataError if it is missing or has another form.
inline HfPattern readPattern(const std::string &file, const nlohmann::json &step) {
  if (step.contains("pattern") && step["pattern"].is_object()) {
    if (step["pattern"].contains("String"))
      return {requiredField<std::string>(file, step["pattern"], "String"), false};
    if (step["pattern"].contains("Regex"))
      return {requiredField<std::string>(file, step["pattern"], "Regex"), true};
  }
  throw DataError(file, "field \"pattern\" is missing or neither String nor Regex");
}

/// Returns step[name], the list of steps of a Sequence. Throws DataError if the list is missing.
inline const nlohmann::json &stepsOf(const std::string &file, const nlohmann::json &step, const char *name) {
  if (!step.contains(name) || !step[name].is_array())
    throw DataError(file, fmt::format("a Sequence without \"{}\"", name));
  return step[name];
}

} // namespace espalier::rt
