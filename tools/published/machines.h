// The machines of published runs, by the gpu column of a row.
#pragma once

#include "planner/problem.h"

#include <string>

namespace espalier::planner {

/// Returns the machine of a gpu column, with at most twelve constants. `name` is empty if the gpu or the precision is
/// unknown. `devices` must fill whole hosts of equal size. A column without a site ("H200", "A100-40GB") gets the
/// peaks of the data sheet and the shares that the same generation reaches elsewhere. With `underPyTorch` these shares
/// come from PyTorch runs: parameter gathers overlap with all products, and attention is not written for the
/// generation.
Machine publishedMachine(const std::string &gpu, const std::string &precision, int devices, bool underPyTorch = false);

} // namespace espalier::planner
