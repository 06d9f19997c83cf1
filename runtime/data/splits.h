// Train, validation and test: three weights cut the sequences of one file into three runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace espalier::rt {

enum class Split { train, valid, test, all };

const char *splitName(Split split);

/// The three weights of "969, 30, 1"; weights that are left out are 0. Throws DataError for weights that are no
/// numbers, negative, more than three, or all zero.
std::array<double, 3> parseSplit(const std::string &weights);

/// The sequences [first, second) of `split` out of `count`, for weights such as "969, 30, 1".
/// Borders are round-half-even(border * count), as Python rounds. `all` is [0, count). Throws what parseSplit throws.
std::pair<int64_t, int64_t> splitRange(const std::string &weights, Split split, int64_t count);

} // namespace espalier::rt
