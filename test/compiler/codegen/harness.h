// Compiles the text of a module and compares every function's program with the reference, at all levels of this
// processor and for GPUs in the emulator.
#pragma once

#include "test/compiler/codegen/machine.h"
#include "test/compiler/codegen/reference.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <memory>

namespace espalier::test {

class Compiled {
public:
  /// Parses and compiles; fails the test when that fails.
  explicit Compiled(const std::string &text);

  /// Runs `function` with the given or random arguments at every level, that of GPUs included, and compares each result
  /// element with the reference: |got - wanted| <= tolerance * (1 + |wanted| + root mean square of the result).
  void check(const std::string &function, const Surroundings &surroundings, double tolerance,
             const std::map<std::string, Numbers> &given = {});

  const rt::pb::Plan &plan() const { return message; }
  /// For GPUs.
  const rt::pb::Plan &gpuPlan() const { return gpuMessage; }
  const rt::pb::Plan &plan(const std::string &level) const { return level == gpuLevel ? gpuMessage : message; }
  /// Launches, calls and collectives of a program in order, as one word each: "row_0 matmul wait".
  std::string instructions(const std::string &function) const;

private:
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> source;
  rt::pb::Plan message, gpuMessage;
};

} // namespace espalier::test
