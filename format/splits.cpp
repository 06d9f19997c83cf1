// Sums follow Megatron's order (normalize, then accumulate), because a difference in the last bit can move a border.
#include "format/splits.h"

#include "messages/data_error.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

namespace espalier::rt {

const char *splitName(Split split) {
  constexpr const char *names[] = {"train", "valid", "test", "all"};
  return names[static_cast<int>(split)];
}

namespace {

[[noreturn]] void refuse(const std::string &weights, const std::string &reason) {
  throw DataError("split \"" + weights + "\"", reason + "; want three weights such as 969,30,1");
}

} // namespace

std::array<double, 3> parseSplit(const std::string &weights) {
  std::array<double, 3> values = {};
  size_t count = 0;
  const char *at = weights.c_str();
  while (true) {
    while (*at == ' ' || *at == ',')
      ++at;
    if (*at == 0)
      break;
    if (count == 3)
      refuse(weights, "more than three weights");
    char *end = nullptr;
    double value = std::strtod(at, &end);
    if (end == at || (*end != 0 && *end != ' ' && *end != ','))
      refuse(weights, "not a number");
    if (!(value >= 0) || std::isinf(value))
      refuse(weights, fmt::format("weight {} is not zero or more", value));
    values[count++] = value;
    at = end;
  }
  if (values[0] + values[1] + values[2] <= 0)
    refuse(weights, "no weight above zero");
  return values;
}

std::pair<int64_t, int64_t> splitRange(const std::string &weights, Split split, int64_t count) {
  if (split == Split::all)
    return {0, count};
  std::array<double, 3> values = parseSplit(weights);
  double sum = values[0] + values[1] + values[2];
  double border = 0;
  std::array<int64_t, 4> borders = {};
  for (int i = 0; i < 3; ++i) {
    border += values[i] / sum;
    auto rounded = static_cast<int64_t>(std::nearbyint(border * static_cast<double>(count)));
    borders[i + 1] = std::min(count, rounded);
  }
  int which = static_cast<int>(split);
  return {borders[which], borders[which + 1]};
}

} // namespace espalier::rt
