#include "runtime/generate/body_reader.h"

#include "runtime/json_bounds.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <map>

namespace espalier::rt {

namespace {

/// Bounds of a valid body. The keys of an object are looked up one by one, so many keys would take quadratic time.
constexpr JsonBounds bounds = {.levels = 32, .keys = 256};

} // namespace

BodyReader::BodyReader(std::string_view text, const BodyLimits &limits) : limits(limits) {
  if (text.size() > limits.bytes)
    throw BodyError(fmt::format("the body has {} bytes, at most {} are taken", text.size(), limits.bytes));
  if (!isWithinBounds(text, bounds))
    throw BodyError(fmt::format("the body is nested in more than {} levels, or an object has more than {} keys",
                                bounds.levels, bounds.keys));
  body = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (body.is_discarded() || !body.is_object())
    throw BodyError("the body is not a JSON object");
}

const BodyReader::Json *BodyReader::find(const char *key) const {
  auto found = body.find(key);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

double BodyReader::number(const char *key, double otherwise) const {
  const Json *value = find(key);
  if (value && !value->is_number())
    throw BodyError(fmt::format("{} is not a number", key));
  return value ? value->get<double>() : otherwise;
}

int64_t BodyReader::integer(const char *key, int64_t otherwise) const {
  const Json *value = find(key);
  if (value && (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)))
    throw BodyError(fmt::format("{} is not an integer", key));
  return value ? value->get<int64_t>() : otherwise;
}

bool BodyReader::flag(const char *key) const {
  const Json *value = find(key);
  if (value && !value->is_boolean())
    throw BodyError(fmt::format("{} is neither true nor false", key));
  return value && value->get<bool>();
}

int64_t BodyReader::integerWithin(const char *key, int64_t otherwise, int64_t least, int64_t most) const {
  int64_t value = integer(key, otherwise);
  if (value < least || value > most)
    throw BodyError(fmt::format("{} is {}, needs to be {} to {}", key, value, least, most));
  return value;
}

std::vector<std::string> BodyReader::stops() const {
  const Json *value = find("stop");
  if (!value)
    return {};
  std::vector<std::string> stops;
  for (const Json &stop : value->is_array() ? *value : Json::array({*value})) {
    if (!stop.is_string() || stop.get_ref<const std::string &>().empty())
      throw BodyError("stop is neither a string nor a list of strings with text");
    stops.push_back(stop.get<std::string>());
    if (stops.size() > limits.stops || stops.back().size() > limits.stopBytes)
      throw BodyError(fmt::format("stop has more than {} strings of {} bytes", limits.stops, limits.stopBytes));
  }
  return stops;
}

std::vector<std::pair<int32_t, double>> BodyReader::biases() const {
  const Json *value = find("logit_bias");
  if (value && !value->is_object())
    throw BodyError("logit_bias is not an object with ids of tokens as keys");
  const Json given = value ? *value : Json::object();
  std::vector<std::pair<int32_t, double>> biases;
  for (const auto &[key, bias] : given.items()) {
    int32_t token = -1;
    auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (fault != std::errc() || end != key.data() + key.size() || token < 0)
      throw BodyError(fmt::format("logit_bias has the key '{}', which is no id of a token", key.substr(0, 64)));
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= 100))
      throw BodyError(fmt::format("logit_bias of token {} is not a number from -100 to 100", token));
    biases.emplace_back(token, bias.get<double>());
  }
  return biases;
}

bool BodyReader::includesUsage() const {
  const Json *options = find("stream_options");
  if (!options)
    return false;
  bool isObject =
      options->is_object() && (options->empty() || (options->size() == 1 && options->contains("include_usage")));
  const Json value = isObject ? options->value("include_usage", Json(false)) : Json();
  if (!value.is_boolean())
    throw BodyError("stream_options is not an object with include_usage true or false");
  return value.get<bool>();
}

void BodyReader::refuseOthers(const std::set<std::string> &known) const {
  static const std::map<std::string, Json> nothing = {{"suffix", nullptr},
                                                      {"tools", Json::array()},
                                                      {"functions", Json::array()},
                                                      {"tool_choice", "none"},
                                                      {"function_call", "none"},
                                                      {"modalities", {"text"}},
                                                      {"service_tier", "auto"},
                                                      {"store", false},
                                                      {"metadata", Json::object()},
                                                      {"parallel_tool_calls", true},
                                                      {"response_format", {{"type", "text"}}}};
  for (const auto &[key, value] : body.items()) {
    auto asked = nothing.find(key);
    bool asksNothing = asked != nothing.end() && (value == asked->second || value.is_null());
    if (!known.count(key) && !asksNothing)
      throw BodyError(
          fmt::format("{} is not supported{}", key.substr(0, 64), asked == nothing.end() ? "" : "; omit it"));
  }
}

} // namespace espalier::rt
