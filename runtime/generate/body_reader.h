// Reads the JSON body of a request with limits. Every error is a sentence about one key.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// An invalid request body, an error of the client.
class BodyError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Limits of a request body.
struct BodyLimits {
  size_t bytes = 1 << 20;
  size_t stops = 4, stopBytes = 256;
  int64_t tokens = 1 << 20; ///< in a prompt
  int64_t choices = 128;    ///< prompts times `n`
  int64_t bestTokens = 20;  ///< alternatives with log probabilities
};

/// A JSON object whose keys are read with checks of their types. A key with the value null counts as missing.
class BodyReader {
public:
  using Json = nlohmann::ordered_json;

  /// Parses the body. Throws BodyError if it is no object, or larger or nested deeper than a valid body can be.
  BodyReader(std::string_view text, const BodyLimits &limits);

  /// Returns the value of a key, or `otherwise` if the key is missing. Throw BodyError for another type.
  double number(const char *key, double otherwise) const;
  int64_t integer(const char *key, int64_t otherwise) const;
  bool flag(const char *key) const;
  /// Returns the integer of a key. Throws BodyError unless it is between `least` and `most`.
  int64_t integerWithin(const char *key, int64_t otherwise, int64_t least, int64_t most) const;
  /// Returns the stop strings: one string, or a list of strings.
  std::vector<std::string> stops() const;
  /// Returns `logit_bias`: ids of tokens, each with a number from -100 to 100.
  std::vector<std::pair<int32_t, double>> biases() const;
  /// Returns `stream_options.include_usage`.
  bool includesUsage() const;

  /// Returns null if the key is missing.
  const Json *find(const char *key) const;
  /// Throws BodyError for a key that is not in `known`, unless its value asks for nothing.
  void refuseOthers(const std::set<std::string> &known) const;

private:
  const BodyLimits &limits;
  Json body;
};

} // namespace espalier::rt
