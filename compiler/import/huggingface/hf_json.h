// Reads the JSON of a config.json.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace espalier {

using Json = nlohmann::ordered_json;

/// Parses a config.json of bounded depth, with the numbers Infinity, -Infinity and NaN, which Python writes. Returns
/// why the text is no object, or an empty text.
std::string readHfConfig(const std::string &text, Json &config);

/// Returns the text of a value as Python writes it.
std::string hfText(Json value, int indent = -1);

/// Converts "a.b" to a pointer.
Json::json_pointer pointerTo(std::string path);

/// Returns the value at "a.b", or null.
const Json *valueAt(const Json &config, const std::string &path);

/// Returns a list whose items are whole numbers or strings.
Json listOf(const std::vector<std::string> &items);

/// Returns the list that pairs [items, repetitions] stand for; null if the value is no list of such pairs, or is too
/// long.
Json expandedPairs(const Json &value);

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
