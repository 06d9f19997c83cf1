// Compiles the text of a module, and compares the program of each function with the reference. Runs it at all
// instruction set levels of this processor, and for GPUs in the emulator.
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
  /// Parses and compiles `text`; fails the test if either fails.
  explicit Compiled(const std::string &text);

  /// Runs `function` with the given or random arguments at every level, including the GPU level. Compares each result
  /// element with the reference: |got - wanted| <= tolerance * (1 + |wanted| + root mean square of the result).
  void check(const std::string &function, const Surroundings &surroundings, double tolerance,
             const std::map<std::string, Numbers> &given = {});

  const rt::pb::Plan &plan() const { return message; }
  /// Returns the plan for GPUs.
  const rt::pb::Plan &gpuPlan() const { return gpuMessage; }
  const rt::pb::Plan &plan(const std::string &level) const { return level == gpuLevel ? gpuMessage : message; }
  /// Returns the launches, calls and collectives of a program in order, one word each: "row_0 matmul wait".
  std::string instructions(const std::string &function) const;

private:
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> source;
  rt::pb::Plan message, gpuMessage;
};

} // namespace espalier::test
