// Machines behind published runs, found by the gpu column of a row.
#pragma once

#include "planner/problem.h"

#include <string>

namespace espalier::planner {

/// The machine of a gpu column, with at most twelve constants; name empty when the gpu or the precision is not known.
/// `devices` fills whole hosts of equal size. Where a column names no site ("H200", "A100-40GB"), the data sheet's
/// peaks and what the same generation reached elsewhere; `underPyTorch`, what it reached there: gathers of parameters
/// run beside all products, and attention is not written for the generation.
Machine publishedMachine(const std::string &gpu, const std::string &precision, int devices, bool underPyTorch = false);

} // namespace espalier::planner
