// An event handler for nlohmann's parser. It stores only the depth and the current key.
#include "runtime/dataset/json_fields.h"

#include "runtime/json_reason.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {

namespace {

class FieldReader final : public nlohmann::json_sax<nlohmann::json> {
public:
  FieldReader(const std::vector<std::string> &keys, std::vector<std::string> &values)
      : keys(keys), values(values), found(keys.size()) {
    values.resize(keys.size());
  }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t &) override { return other("a number"); }
  bool binary(binary_t &) override { return other("binary"); }
  bool string(string_t &value) override {
    if (depth == 1 && current < keys.size()) {
      values[current] = std::move(value);
      found[current] = true;
      return true;
    }
    return other("a string");
  }
  bool start_object(size_t) override { return open("an object"); }
  bool start_array(size_t) override { return depth == 0 ? refuse("want an object, got an array") : open("an array"); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t &name) override {
    if (depth == 1 && names.size() <= mostKeysShown)
      names.push_back(name);
    if (depth == 1)
      current = std::find(keys.begin(), keys.end(), name) - keys.begin();
    return true;
  }
  bool parse_error(size_t, const std::string &, const nlohmann::json::exception &error) override {
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

private:
  bool refuse(std::string why) {
    reason = std::move(why);
    return false;
  }
  bool other(const char *kind) {
    if (depth == 0)
      return refuse(fmt::format("want an object, got {}", kind));
    if (depth == 1 && current < keys.size())
      return refuse(fmt::format("key \"{}\" holds {}, want a string", keys[current], kind));
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
  std::vector<std::string> &values;
  std::vector<bool> found;
  std::vector<std::string> names; ///< the first keys of the object
  size_t depth = 0, current = ~size_t{0};
  std::string reason;
};

} // namespace

std::string noKey(const std::string &key, const std::vector<std::string> &names) {
  std::string text = fmt::format("no key \"{}\"", key);
  for (size_t i = 0; i < std::min(names.size(), mostKeysShown); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "; there are " : ", ", names[i].substr(0, 40));
  return text + (names.size() > mostKeysShown ? ", ..." : "");
}

std::string readJsonFields(std::string_view line, const std::vector<std::string> &keys,
                           std::vector<std::string> &values) {
  FieldReader reader(keys, values);
  nlohmann::json::sax_parse(line, &reader);
  return reader.result();
}

} // namespace espalier::rt
