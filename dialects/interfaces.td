// The op interfaces that passes use: sharding, derivative, cost and, for element-wise ops, the computation of one
// element. <dialect>/rules.cpp implements them.
#ifndef ESPALIER_DIALECTS_INTERFACES
#define ESPALIER_DIALECTS_INTERFACES

include "mlir/IR/OpBase.td"

// What split-phases does with a result that backward reads. Without a trait, backward recomputes an op, unless its cost
// is isExpensive or the policy is that nothing is recomputed.
class PhaseTrait<string name> : NativeOpTrait<name> { let cppNamespace = "::espalier"; }
def KeptForBackward : PhaseTrait<"KeptForBackward">;
def RepeatedInBackward : PhaseTrait<"RepeatedInBackward">;

def ShardableOpInterface : OpInterface<"ShardableOp"> {
  let description = [{
    Defines how an op runs on shards. Factors are the named dimensions of its operands and results; equal names are one
    factor. By default, every factor is parallel, and localization clones the op with local types.
  }];
  let cppNamespace = "::espalier";
  let methods = [
    InterfaceMethod<"Returns the effect of sharding the factor `dim` on this op.",
      "::espalier::FactorKind", "factorKind", (ins "::llvm::StringRef":$dim), [{}],
      [{ return ::espalier::FactorKind::Parallel; }]>,
    InterfaceMethod<"Returns whether results are linear in all partial operands, so that partial sums pass through.",
      "bool", "passesPartial", (ins), [{}], [{ return false; }]>,
    InterfaceMethod<"Creates the op on local operands and returns its local results.",
      "::llvm::SmallVector<::mlir::Value>", "localize",
      (ins "::espalier::LocalizeContext &":$context), [{}],
      [{ return context.cloneLocal($_op); }]>,
  ];
}

def DifferentiableOpInterface : OpInterface<"DifferentiableOp"> {
  let description = [{ Defines the reverse-mode derivative on global shapes. }];
  let cppNamespace = "::espalier";
  let methods = [
    InterfaceMethod<"Adds the op's contributions to the cotangents of its operands.",
      "void", "differentiate", (ins "::espalier::GradientBuilder &":$gradients)>,
  ];
}

def CostedOpInterface : OpInterface<"CostedOp"> {
  let description = [{ Defines the cost of an op with the shapes of its types. }];
  let cppNamespace = "::espalier";
  let methods = [
    InterfaceMethod<"Returns the floating-point operations; a multiply-add counts as two.",
      "double", "flops", (ins), [{}],
      [{ return ::espalier::elementsOfResults($_op); }]>,
    InterfaceMethod<"Returns whether selective recompute saves the results: matrix products and attention.",
      "bool", "isExpensive", (ins), [{}], [{ return false; }]>,
  ];
}

def ElementwiseOpInterface : OpInterface<"ElementwiseOp"> {
  let description = [{
    Each result element is a function of one element of each operand. Operands broadcast by dimension name. Arithmetic
    is in f32 for all storage types.
  }];
  let cppNamespace = "::espalier";
  let methods = [
    InterfaceMethod<"Computes one result element; the interpreter uses it.",
      "double", "evaluate", (ins "::llvm::ArrayRef<double>":$x)>,
    InterfaceMethod<"Emits the same function as arith and math ops on f32 scalars or vectors.",
      "::mlir::Value", "emit",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::ValueRange":$x)>,
  ];
}

#endif
