// Reads the JSON of a config.json.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace espalier {

using Json = nlohmann::ordered_json;

/// Parses a config.json of bounded depth. Throws Json::exception.
Json parseHfConfig(const std::string &text);

/// Converts "a.b" to a pointer.
Json::json_pointer pointerTo(std::string path);

/// Returns the value at "a.b", or null.
const Json *valueAt(const Json &config, const std::string &path);

/// Returns a list whose items are whole numbers or strings.
Json listOf(const std::vector<std::string> &items);

/// Returns the value as a YAML scalar, with strings unquoted.
std::string scalar(const Json &value);

/// Returns the type of the weights.
std::string dtypeOf(const Json &config);

/// Returns the config of the text model of a model that also reads images or sounds, with the type of its weights and
/// whether its head is tied. Returns any other config as it is.
Json textConfigOf(const Json &config);

/// Returns why weights that the config says are quantised are refused, or an empty text.
std::string quantizationFault(const Json &config);

/// Returns whether a key of any config changes neither weights nor computation: files, tokens, decoding, the form of
/// results, and the notes that other software leaves.
bool isInertHfKey(const std::string &key);

} // namespace espalier
