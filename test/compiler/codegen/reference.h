// Numbers that compiled programs are compared with: functions of the model dialect evaluated op by op in double.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <vector>

namespace espalier::test {

using Numbers = std::vector<double>;

/// Run-time numbers that ops depend on.
struct Surroundings {
  uint32_t seed = 7, step = 3, layer = 2, microBatch = 1;
  std::vector<float> slots = std::vector<float>(16, 1.0f); ///< of the scalars region
};

/// Results of `function` for `arguments`. Values of 16-bit types are rounded where the function says so, at loads of
/// arguments only: intermediate values stay exact.
std::vector<Numbers> evaluate(mlir::func::FuncOp function, const std::vector<Numbers> &arguments,
                              const Surroundings &surroundings);

} // namespace espalier::test
