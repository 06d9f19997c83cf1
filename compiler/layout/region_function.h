// Builds functions on slices of a segment's regions: the norm and the updates at the end of a step.
#pragma once

#include "dialects/attributes.h"
#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace espalier {

/// Builds one function whose arguments and results are slices of a segment's regions.
class RegionFunction {
public:
  RegionFunction(mlir::ModuleOp module, llvm::StringRef name)
      : b(module.getContext()), loc(mlir::UnknownLoc::get(b.getContext())) {
    b.setInsertionPointToEnd(module.getBody());
    function = b.create<mlir::func::FuncOp>(loc, name, b.getFunctionType({}, {}));
    b.setInsertionPointToStart(function.addEntryBlock());
  }

  /// Sets the location of the ops that follow, usually a parameter's line in the model file.
  void moveTo(mlir::Location at) { loc = at; }

  mlir::RankedTensorType flat(int64_t elements, mlir::Type element) {
    return namedTensor({elements}, {b.getStringAttr("element")}, element);
  }

  mlir::Value argument(mlir::Type type, llvm::StringRef role, llvm::StringRef name, mlir::ArrayAttr share = {}) {
    (void)function.insertArgument(function.getNumArguments(), type, attributes(role, name, share), loc);
    return function.getBody().front().getArguments().back();
  }

  void result(mlir::Value value, llvm::StringRef role, llvm::StringRef name, mlir::ArrayAttr share = {}) {
    results.push_back(value);
    resultAttributes.push_back(attributes(role, name, share));
  }

  void finish() {
    b.create<mlir::func::ReturnOp>(loc, results);
    function.setType(b.getFunctionType(function.getBody().getArgumentTypes(), mlir::ValueRange(results).getTypes()));
    for (auto [index, dictionary] : llvm::enumerate(resultAttributes))
      function.setResultAttrs(index, dictionary);
  }

  mlir::ArrayAttr axes(llvm::ArrayRef<mlir::StringAttr> names) {
    return b.getArrayAttr(llvm::SmallVector<mlir::Attribute>(names.begin(), names.end()));
  }

  void setAttribute(llvm::StringRef name, mlir::Attribute value) { function->setAttr(name, value); }

  mlir::OpBuilder b;
  mlir::Location loc;

private:
  mlir::DictionaryAttr attributes(llvm::StringRef role, llvm::StringRef name, mlir::ArrayAttr share) {
    llvm::SmallVector<mlir::NamedAttribute> list = {b.getNamedAttr(model::roleAttr, b.getStringAttr(role)),
                                                    b.getNamedAttr(model::nameAttr, b.getStringAttr(name))};
    if (share && !share.empty())
      list.push_back(b.getNamedAttr(exec::shareAttr, share));
    return b.getDictionaryAttr(list);
  }

  mlir::func::FuncOp function;
  llvm::SmallVector<mlir::Value> results;
  llvm::SmallVector<mlir::DictionaryAttr> resultAttributes;
};

} // namespace espalier
