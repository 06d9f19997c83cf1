#include "runtime/checkpoint/nearest.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

namespace espalier::rt {
namespace {

/// Returns the edit distance of two texts. `row` holds the distances of all prefixes of `a` to a prefix of `b`.
size_t changes(const std::string &a, const std::string &b) {
  std::vector<size_t> row(a.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t j = 1; j <= b.size(); ++j) {
    size_t diagonal = std::exchange(row[0], j);
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[i];
      row[i] = std::min({row[i] + 1, row[i - 1] + 1, change});
    }
  }
  return row.back();
}

} // namespace

std::string nearestText(const std::string &name, const std::vector<std::string> &names) {
  const std::string *nearest = nullptr;
  size_t fewest = 0;
  for (const std::string &other : names)
    if (size_t count = changes(name, other); !nearest || count < fewest) {
      nearest = &other;
      fewest = count;
    }
  return nearest ? fmt::format("; the nearest is '{}'", *nearest) : "";
}

} // namespace espalier::rt
