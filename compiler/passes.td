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

def FuseKernels : Pass<"fuse-kernels", "::mlir::ModuleOp"> {
  let summary = "Groups element-wise ops and reductions into exec.fused, one per kernel";
  let description = [{
    Row groups (norms, softmax, bias and activation, dropout and residual) grow along producers and consumers; sums
    over rows become column groups that compute their operands again where that reads little.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def LowerToExec : Pass<"lower-to-exec", "::mlir::ModuleOp"> {
  let summary = "Turns each function into an exec.program over buffers and each distinct fused body into a kernel";
  let description = [{
    Arguments and results lie in the regions that their roles name; values in between get virtual buffers.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def PlanBuffers : Pass<"plan-buffers", "::mlir::ModuleOp"> {
  let summary = "Gives virtual buffers their places in the workspace";
  let description = [{
    A buffer is live from its first to its last instruction, collectives until their wait. The largest buffers are
    placed first, each in the smallest gap that is free over its lifetime.
  }];
}

#endif
