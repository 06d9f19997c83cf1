// Every pass, in pipeline order: a reading guide to the compiler.
#ifndef ESPALIER_COMPILER_PASSES
#define ESPALIER_COMPILER_PASSES

include "mlir/Pass/PassBase.td"

def Differentiate : Pass<"differentiate", "::mlir::ModuleOp"> {
  let summary = "Extends each segment to one joint function: forward, model.cotangent, backward";
  let description = [{
    A segment `(stream, inputs, parameters) -> stream` becomes `(stream, inputs, parameters, accumulators) -> (stream,
    gradient of the incoming stream, new accumulators)`. Later passes see forward and backward together, so that they
    cannot disagree.
  }];
}

#endif
