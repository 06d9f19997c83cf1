// The model dialect: the computation on global shapes with named dimensions, for forward and backward.
#ifndef ESPALIER_MODEL_DIALECT
#define ESPALIER_MODEL_DIALECT

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Model_Dialect : Dialect {
  let name = "model";
  let cppNamespace = "::espalier::model";
  let summary = "The computation: tensor ops of language models over named dimensions";
  let description = [{
      The encoding of a tensor type names its dimensions: `tensor<2x8x16xf32, #model.dims<batch, seq, hidden>>`.
      Element-wise ops broadcast by name. Forward, backward and the optimizer use the same ops. Element types are
      storage types; arithmetic is in f32.
  }];
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def Model_DimsAttr : AttrDef<Model_Dialect, "Dims"> {
  let mnemonic = "dims";
  let summary = "Names of a tensor's dimensions, outermost first";
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$names);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Model_RunAttr : AttrDef<Model_Dialect, "Run"> {
  let mnemonic = "run";
  let summary = "A number of consecutive segments of one kind";
  let parameters = (ins StringRefParameter<>:$kind, "int":$count);
  let assemblyFormat = "`<` struct(params) `>`";
}

#endif
