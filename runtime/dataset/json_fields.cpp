// An event handler for nlohmann's parser. It stores only the depth, the current key and the names of the keys.
#include "runtime/dataset/json_fields.h"

#include "messages/json_reason.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {

namespace {

class FieldReader final : public nlohmann::json_sax<nlohmann::json> {
public:
  FieldReader(const std::vector<std::string> &keys, std::vector<JsonField> &fields, bool isReplaced)
      : keys(keys), fields(fields), found(keys.size()), isReplaced(isReplaced) {
    fields.assign(keys.size(), {});
  }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!isInIds() || value > INT32_MAX)
      return other("a number");
    fields[current].ids.push_back(static_cast<int32_t>(value));
    return true;
  }
  bool number_float(number_float_t, const string_t &) override { return other("a number"); }
  bool binary(binary_t &) override { return other("binary"); }
  bool string(string_t &value) override {
    if (!isWanted())
      return other("a string");
    if (isReplaced && value.find(loneSurrogate) != std::string::npos)
      return refuse(fmt::format("key \"{}\" holds half of a surrogate pair, which is no character", keys[current]));
    fields[current] = {std::move(value), {}, false};
    found[current] = true;
    return true;
  }
  bool start_object(size_t) override { return open("an object"); }
  bool start_array(size_t) override {
    if (depth == 0)
      return refuse("want an object, got an array");
    if (!isWanted())
      return open("an array");
    fields[current] = {"", {}, true};
    found[current] = true;
    ++depth;
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t &name) override {
    if (depth != 1)
      return true;
    current = std::find(keys.begin(), keys.end(), name) - keys.begin();
    if (names.size() <= mostKeysShown)
      names.push_back(name);
    return true;
  }
  bool parse_error(size_t, const std::string &, const nlohmann::json::exception &error) override {
    isJson = false;
    return refuse(fmt::format("not JSON: {}", jsonReason(error)));
  }

  std::string result() const {
    if (!reason.empty())
      return reason;
    for (size_t i = 0; i < keys.size(); ++i)
      if (!found[i])
        return noKey(keys[i], names);
    return {};
  }
  bool isJson = true;

private:
  bool refuse(std::string why) {
    reason = std::move(why);
    return false;
  }
  bool isWanted() const { return depth == 1 && current < keys.size(); }
  bool isInIds() const { return depth == 2 && current < keys.size(); }
  bool other(const char *kind) {
    if (depth == 0)
      return refuse(fmt::format("want an object, got {}", kind));
    if (isWanted())
      return refuse(fmt::format("key \"{}\" holds {}, want a string or a list of token ids", keys[current], kind));
    if (isInIds())
      return refuse(fmt::format("the list of key \"{}\" holds {}, want token ids", keys[current], kind));
    return true;
  }
  bool open(const char *kind) {
    if (depth > 0 && !other(kind))
      return false;
    ++depth;
    return true;
  }
  bool close() {
    --depth;
    return true;
  }

  const std::vector<std::string> &keys;
  std::vector<JsonField> &fields;
  std::vector<bool> found;
  const bool isReplaced;
  std::vector<std::string> names; ///< the first keys of the object
  size_t depth = 0, current = ~size_t{0};
  std::string reason;
};

/// Returns the code unit of an escape \\uXXXX at `at`, or -1.
int codeUnit(std::string_view text, size_t at) {
  unsigned value = 0;
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u')
    return -1;
  const char *end = text.data() + at + 6;
  auto [rest, fault] = std::from_chars(text.data() + at + 2, end, value, 16);
  return fault == std::errc() && rest == end ? static_cast<int>(value) : -1;
}

/// Replaces half of a surrogate pair at a backslash. Returns the length of the escape.
size_t replaceEscape(std::string &text, size_t at) {
  int unit = codeUnit(text, at);
  if (unit < 0xD800 || unit > 0xDFFF)
    return 2;
  int next = codeUnit(text, at + 6);
  if (unit < 0xDC00 && next >= 0xDC00 && next <= 0xDFFF)
    return 12;
  text.replace(at, 6, "\\uffff");
  return 6;
}

/// Replaces a number that JSON does not have by 0. Returns its length.
size_t replaceNumber(std::string &text, size_t at) {
  size_t end = at;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) ||
                               std::string_view("+-.").find(text[end]) != std::string_view::npos))
    ++end;
  std::string word = text.substr(at, end - at);
  bool isNumber = word.find_first_not_of("0123456789+-.eE") == std::string::npos;
  if (word == "NaN" || word == "Infinity" || word == "-Infinity" ||
      (isNumber && std::isinf(std::strtod(word.c_str(), nullptr))))
    text.replace(at, word.size(), "0" + std::string(word.size() - 1, ' '));
  return std::max<size_t>(1, word.size());
}

/// Replaces the values that Python's json reads and JSON does not have. The columns of the others stay.
std::string withoutPythonsValues(std::string_view line) {
  std::string text(line);
  bool isString = false;
  for (size_t at = 0; at < text.size();) {
    if (isString && text[at] == '\\') {
      at += replaceEscape(text, at);
    } else if (text[at] == '"') {
      isString = !isString;
      ++at;
    } else {
      at += isString ? 1 : replaceNumber(text, at);
    }
  }
  return text;
}

} // namespace

std::string noKey(const std::string &key, const std::vector<std::string> &names) {
  std::string text = fmt::format("no key \"{}\"", key);
  for (size_t i = 0; i < std::min(names.size(), mostKeysShown); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "; there are " : ", ", names[i].substr(0, 40));
  return text + (names.size() > mostKeysShown ? ", ..." : "");
}

std::string readJsonFields(std::string_view line, const std::vector<std::string> &keys,
                           std::vector<JsonField> &fields) {
  FieldReader strict(keys, fields, /*isReplaced=*/false);
  nlohmann::json::sax_parse(line, &strict);
  if (strict.isJson)
    return strict.result();
  FieldReader reader(keys, fields, /*isReplaced=*/true);
  nlohmann::json::sax_parse(withoutPythonsValues(line), &reader);
  return reader.result();
}

nlohmann::json parseJsonLine(std::string_view line, std::string &fault) {
  nlohmann::json value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!value.is_discarded())
    return value;
  try {
    return nlohmann::json::parse(withoutPythonsValues(line));
  } catch (const nlohmann::json::exception &error) {
    fault = fmt::format("not JSON: {}", jsonReason(error));
    return {};
  }
}

bool isBlankLine(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

} // namespace espalier::rt
