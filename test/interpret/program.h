// A program in text form for tests: parsed, optionally transformed by a pass, and evaluated.
#pragma once

#include "compiler/interpret/eval.h"
#include "dialects/register.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "gmock/gmock.h"

#include <random>

namespace espalier {

/// Returns `tensor<2x3xf32, #model.dims<batch, seq>>` for "batch=2 seq=3", and `tensor<f32>` for "".
inline std::string tensorType(const std::string &dims, const std::string &element = "f32") {
  std::istringstream stream(dims);
  std::string shape, names, word;
  while (stream >> word) {
    size_t split = word.find('=');
    names += (names.empty() ? "" : ", ") + word.substr(0, split);
    shape += word.substr(split + 1) + "x";
  }
  return "tensor<" + shape + element + (names.empty() ? "" : ", #model.dims<" + names + ">") + ">";
}

class Program {
public:
  explicit Program(const std::string &text) {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      throw std::invalid_argument("no valid program: " + text);
  }

  bool run(std::unique_ptr<mlir::Pass> pass) {
    mlir::PassManager manager(&context);
    manager.addPass(std::move(pass));
    return mlir::succeeded(manager.run(*module));
  }

  mlir::func::FuncOp function() { return *module->getOps<mlir::func::FuncOp>().begin(); }
  unsigned arguments() { return function().getNumArguments(); }
  mlir::RankedTensorType argumentType(unsigned index) {
    return llvm::cast<mlir::RankedTensorType>(function().getArgumentTypes()[index]);
  }
  Tensor argument(unsigned index, std::vector<double> values) { return {argumentType(index), std::move(values)}; }
  /// Returns an argument with start + i * step as element i.
  Tensor ramp(unsigned index, double start, double step) {
    Tensor tensor(argumentType(index));
    for (size_t i = 0; i < tensor.values.size(); ++i)
      tensor.values[i] = start + step * static_cast<double>(i);
    return tensor;
  }

  /// Returns the results. If the evaluation fails, fails the test and returns nothing.
  std::vector<Tensor> evaluate(const std::vector<Tensor> &arguments, EvalContext &evalContext) {
    auto results = espalier::evaluate(function(), arguments, evalContext);
    if (!results) {
      ADD_FAILURE() << llvm::toString(results.takeError());
      return {};
    }
    return std::move(*results);
  }
  std::vector<double> first(const std::vector<Tensor> &arguments, EvalContext evalContext = {}) {
    std::vector<Tensor> results = evaluate(arguments, evalContext);
    return results.empty() ? std::vector<double>() : results.front().values;
  }
  /// Returns the error of an evaluation that must fail.
  std::string error(const std::vector<Tensor> &arguments, EvalContext evalContext = {}) {
    auto results = espalier::evaluate(function(), arguments, evalContext);
    return results ? "no error" : llvm::toString(results.takeError());
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// Returns `func.func @f(%x0: .., %x1: ..) -> result { %y = "op line" return %y }` for an op that is written with %x0,
/// %x1, ..
inline std::string oneOp(const std::vector<std::string> &types, const std::string &op, const std::string &result) {
  std::string arguments, operandTypes;
  for (size_t i = 0; i < types.size(); ++i) {
    arguments += (i ? ", %x" : "%x") + std::to_string(i) + ": " + types[i];
    operandTypes += (i ? ", " : "") + types[i];
  }
  return "func.func @f(" + arguments + ") -> " + result + " {\n  %y = " + op + " : (" + operandTypes + ") -> " +
         result + "\n  return %y : " + result + "\n}\n";
}

} // namespace espalier
