// What passes ask of an op: how it may be sharded, what its derivative is, what it costs, and, for
// element-wise ops, how one element is computed. Implementations stand in <dialect>/rules.cpp.
#ifndef ESPALIER_DIALECTS_INTERFACES
#define ESPALIER_DIALECTS_INTERFACES

include "mlir/IR/OpBase.td"

def ShardableOpInterface : OpInterface<"ShardableOp"> {
  let description = [{
    How an op runs on shards. Factors are the named dimensions of its operands and results: a dimension that
    several of them have is one factor. The default says that every factor is parallel and that localization is
    a clone with local types.
  }];
  let cppNamespace = "::espalier";
  let methods = [
    InterfaceMethod<"What splitting the factor `dim` does to this op.",
      "::espalier::FactorKind", "factorKind", (ins "::llvm::StringRef":$dim), [{}],
      [{ return ::espalier::FactorKind::Parallel; }]>,
    InterfaceMethod<"Whether results are linear in all partial operands together, so that partial sums pass through.",
      "bool", "passesPartial", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<"Creates the op on local operands and returns its local results.",
      "::llvm::SmallVector<::mlir::Value>", "localize",
      (ins "::espalier::LocalizeContext &":$context), [{}],
      [{ return context.cloneLocal($_op); }]>,
  ];
}

def DifferentiableOpInterface : OpInterface<"DifferentiableOp"> {
  let description = [{ Reverse-mode derivative on global shapes. }];
  let cppNamespace = "::espalier";
  let methods = [
    InterfaceMethod<"Adds the op's contributions to the cotangents of its operands.",
      "void", "differentiate", (ins "::espalier::GradientBuilder &":$gradients)>,
  ];
}

def CostedOpInterface : OpInterface<"CostedOp"> {
  let description = [{ What the op costs at the shapes of its types. }];
  let cppNamespace = "::espalier";
  let methods = [
    InterfaceMethod<"Floating-point operations; a multiply-add counts two.",
      "double", "flops", (ins), [{}],
      [{ return ::espalier::elementsOfResults($_op); }]>,
    InterfaceMethod<"Matrix products and attention keep their results under selective recompute; the rest is repeated.",
      "bool", "isExpensive", (ins), [{}], [{ return false; }]>,
  ];
}

def ElementwiseOpInterface : OpInterface<"ElementwiseOp"> {
  let description = [{
    One result element is a function of one element of each operand, which broadcasts by dimension name.
    Arithmetic is f32 whatever the storage types are.
  }];
  let cppNamespace = "::espalier";
  let methods = [
    InterfaceMethod<"The function on numbers: what the interpreter runs.",
      "double", "evaluate", (ins "::llvm::ArrayRef<double>":$x)>,
    InterfaceMethod<"The same function as arith and math ops on f32 scalars or vectors.",
      "::mlir::Value", "emit",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::ValueRange":$x)>,
  ];
}

#endif
