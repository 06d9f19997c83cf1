// Evaluates functions of the model dialect op by op in double precision, as the reference for compiled programs.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <vector>

namespace espalier::test {

using Numbers = std::vector<double>;

/// Run-time numbers that ops depend on.
struct Surroundings {
  uint32_t seed = 7, step = 3, layer = 2, microBatch = 1;
  std::vector<float> slots = std::vector<float>(16, 1.0f); ///< the slots of the scalars region
};

/// Evaluates `function` for `arguments`. Arguments of 16-bit types are rounded when they are loaded; intermediate
/// values stay exact.
std::vector<Numbers> evaluate(mlir::func::FuncOp function, const std::vector<Numbers> &arguments,
                              const Surroundings &surroundings);

} // namespace espalier::test
