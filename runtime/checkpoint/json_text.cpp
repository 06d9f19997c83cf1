// The depth is limited before parsing, because a megabyte of brackets would become a hundred megabytes of values.
#include "runtime/checkpoint/json_text.h"

#include "runtime/json_bounds.h"

#include <limits>

namespace espalier::rt {
namespace {

using Json = nlohmann::json;

constexpr size_t mostLevels = 8;

} // namespace

Json parseShallow(std::string_view text) {
  if (!isWithinBounds(text, {.levels = mostLevels}))
    throw Json::other_error::create(501, "nested too deep", nullptr);
  return Json::parse(text);
}

int64_t wholeNumber(const Json &value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
    throw Json::type_error::create(302, "a whole number is expected, got " + value.dump(), nullptr);
  return value.get<int64_t>();
}

std::vector<int64_t> wholeNumbers(const Json &list) {
  if (!list.is_array())
    throw Json::type_error::create(302, "a list of whole numbers is expected", nullptr);
  std::vector<int64_t> numbers;
  for (const Json &value : list)
    numbers.push_back(wholeNumber(value));
  return numbers;
}

} // namespace espalier::rt
