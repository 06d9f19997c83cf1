// Training, validation and test splits: three weights divide the sequences of a file into three ranges.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace espalier::rt {

/// A split of a dataset; `all` is the whole dataset.
enum class Split { train, valid, test, all };

/// Returns the name of a split.
const char *splitName(Split split);

/// Parses three weights such as "969, 30, 1". Missing weights are 0. Throws DataError if a weight is not a number or
/// negative, if there are more than three, or if all are 0.
std::array<double, 3> parseSplit(const std::string &weights);

/// Returns the sequences [first, second) of `split` out of `count`, for weights such as "969, 30, 1". Borders are
/// round-half-even(border * count), as in Python. `all` is [0, count). Throws as parseSplit does.
std::pair<int64_t, int64_t> splitRange(const std::string &weights, Split split, int64_t count);

} // namespace espalier::rt
