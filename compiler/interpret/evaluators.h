// The table of the functions that evaluate each op. Each eval_*.cpp adds the functions of its op family.
#pragma once

#include "compiler/interpret/eval.h"

#include "llvm/ADT/StringMap.h"

#include <functional>

namespace espalier {

using Operands = llvm::ArrayRef<const Tensor *>;
using Results = llvm::Expected<std::vector<Tensor>>;

/// Evaluation functions, keyed by op name.
class EvaluatorTable {
public:
  using Function = std::function<Results(mlir::Operation *, Operands, EvalContext &)>;

  /// Adds an op that may fail or has several results.
  template <typename Op> void add(Results (*function)(Op, Operands, EvalContext &)) {
    functions[Op::getOperationName()] = [function](mlir::Operation *op, Operands x, EvalContext &context) {
      return function(llvm::cast<Op>(op), x, context);
    };
  }
  /// Adds an op that has one result and cannot fail. The function fills the result, which is initialized with zeros.
  template <typename Op> void add(void (*function)(Op, Operands, const EvalContext &, Tensor &)) {
    functions[Op::getOperationName()] = [function](mlir::Operation *op, Operands x, EvalContext &context) -> Results {
      std::vector<Tensor> results;
      results.emplace_back(llvm::cast<mlir::RankedTensorType>(op->getResult(0).getType()));
      function(llvm::cast<Op>(op), x, context, results.front());
      return results;
    };
  }
  /// Returns null for an op without evaluation.
  const Function *find(llvm::StringRef name) const {
    auto found = functions.find(name);
    return found == functions.end() ? nullptr : &found->second;
  }

private:
  llvm::StringMap<Function> functions;
};

/// Add the evaluation functions of one op family.
void addArithmetic(EvaluatorTable &table);
void addIndexing(EvaluatorTable &table);
void addRandom(EvaluatorTable &table);
void addAttention(EvaluatorTable &table);
void addRecurrences(EvaluatorTable &table);
void addMixtureOfExperts(EvaluatorTable &table);
void addCollectives(EvaluatorTable &table);

} // namespace espalier
