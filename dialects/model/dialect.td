// The model dialect: what is computed, on global shapes with named dimensions, forward and backward alike.
#ifndef ESPALIER_MODEL_DIALECT
#define ESPALIER_MODEL_DIALECT

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Model_Dialect : Dialect {
  let name = "model";
  let cppNamespace = "::espalier::model";
  let summary = "What is computed: tensor ops of language models over named dimensions";
  let description = [{
    Tensors carry the names of their dimensions in their encoding: `tensor<2x8x16xf32, #model.dims<batch, seq,
    hidden>>`. Element-wise ops broadcast by name. The same ops serve forward, backward and the optimizer; element
    types are storage types, arithmetic is f32.
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

#endif
