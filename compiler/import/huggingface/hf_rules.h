// The section `hf_config:` of a model file: which key of a config.json is which size, and which keys have one value.
#pragma once

#include "compiler/import/model/architecture.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace espalier {

/// One entry of `hf_config: sizes:`.
struct HfSize {
  std::string key;
  std::vector<std::string> also;  ///< other places of the key
  std::vector<std::string> sizes; ///< all get the value; the first one is written back
  std::string defaultText, times, dim;
  bool isRequired = false;                    ///< transformers' value of a missing key is none of those above
  std::string unset;                          ///< meaning of null, and of a missing key without a default
  std::map<std::string, std::string> spelled; ///< choice here -> transformers' name
  std::map<std::string, std::string> refused; ///< value that is refused -> reason
  std::string ifSize;                         ///< the size that gives the key a meaning, if it is one of `ifValues`
  std::vector<std::string> ifValues;

  /// Returns the key and its other places.
  std::vector<std::string> places() const {
    std::vector<std::string> all = {key};
    all.insert(all.end(), also.begin(), also.end());
    return all;
  }
  /// Returns whether the key itself is the one that gives others a meaning, or needs none.
  bool isCondition() const { return ifSize.empty() || sizes.front() == ifSize; }
  /// Returns whether the key lies in a map within the config.
  bool isNested() const { return key.find('.') != std::string::npos; }
  /// Returns the number that null stands for, if it is no expression of other keys.
  std::optional<double> unsetNumber() const {
    char *end = nullptr;
    double number = std::strtod(unset.c_str(), &end);
    return unset.empty() || *end != '\0' ? std::nullopt : std::optional(number);
  }
};

/// One entry of `hf_config: only:`: a key with one supported value. The entry is that value, or a map that contains it.
struct HfForm {
  std::string key;
  YamlPtr wanted;                      ///< `is`; null if each item of a list must be equal to `each`
  std::string missing = {};            ///< transformers' value for a missing key; empty means the supported value
  std::string least = {};              ///< an expression; numbers of at least this size are also supported
  std::string each = {};               ///< the only supported item of a list
  std::vector<std::string> cycle = {}; ///< the items of a list, repeated
  std::string of =
      {}; ///< the key of the list that the value must say, as pairs of a list of items and their repetitions

  /// Returns what the model supports, as a text for errors.
  std::string text(const std::string &model) const;
};

/// `hf_config:` of a model file.
struct HfRules {
  std::vector<std::string> modelTypes; ///< values of model_type; the first is written
  std::string architecture;
  std::vector<HfSize> sizes;
  std::vector<HfForm> only;
  std::vector<std::pair<std::string, std::string>> implied; ///< sizes without a key -> expression that defines them
  std::map<std::string, double> unsaid; ///< sizes without a key -> the only value that a config.json can mean
  std::set<std::string> ignored;
  std::vector<std::string>
      cleared; ///< keys without effect that are written as null, because their default may not fit the model
};

/// Reads the section of a model file. Returns nothing if there is none.
std::optional<HfRules> readHfRules(const Architecture &architecture);

} // namespace espalier
