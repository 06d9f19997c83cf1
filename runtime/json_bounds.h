// Bounds of untrusted JSON texts, checked in linear time before a text becomes values.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// Bounds of a JSON text.
struct JsonBounds {
  size_t levels;                                    ///< of nested objects and arrays
  size_t keys = std::numeric_limits<size_t>::max(); ///< of one object
};

/// Reads a JSON text without building values, until a bound is exceeded or the text is not JSON. The library's parser
/// with a callback could limit the depth, too, but looks at all elements of a list for each of them.
class JsonBoundsReader : public nlohmann::json_sax<nlohmann::json> {
public:
  explicit JsonBoundsReader(const JsonBounds &bounds) : bounds(bounds) {}
  bool isExceeded() const { return exceeded; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t &) override { return true; }
  bool string(string_t &) override { return true; }
  bool binary(binary_t &) override { return true; }
  bool key(string_t &) override { return check(++keys.back() <= bounds.keys); }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string &, const nlohmann::json::exception &) override { return false; }

private:
  bool check(bool isWithin) {
    exceeded |= !isWithin;
    return isWithin;
  }
  bool open() {
    keys.push_back(0);
    return check(keys.size() <= bounds.levels);
  }
  bool close() {
    keys.pop_back();
    return true;
  }

  const JsonBounds bounds;
  std::vector<size_t> keys; ///< of each open object or array
  bool exceeded = false;
};

/// Returns whether a text is within the bounds. A text that is not JSON counts up to its fault, where the parser that
/// builds values stops, too.
inline bool isWithinBounds(std::string_view text, const JsonBounds &bounds) {
  JsonBoundsReader reader(bounds);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return !reader.isExceeded();
}

} // namespace espalier::rt
