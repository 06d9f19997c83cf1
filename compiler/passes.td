// Every pass, in pipeline order: a reading guide to the compiler.
#ifndef ESPALIER_COMPILER_PASSES
#define ESPALIER_COMPILER_PASSES

include "mlir/Pass/PassBase.td"

def Differentiate : Pass<"differentiate", "::mlir::ModuleOp"> {
  let summary = "Extends each segment to one joint function: forward, model.cotangent, backward";
  let description = [{
    A segment `(stream, inputs, parameters) -> stream` becomes `(stream, inputs, parameters, accumulators) -> (stream,
    gradient of the incoming stream, new accumulators)`. Results with the role `loss` are differentiated, too. Later
    passes see forward and backward together, so that they cannot disagree.
  }];
}

def PropagateShardings : Pass<"propagate-shardings", "::mlir::ModuleOp"> {
  let summary = "Decides where every value of the joint functions lives";
  let description = [{
    Reads the placement of named dimensions from the module (`dist.mesh`, `dist.dims`, `dist.sequence_parallel`) and
    records for each op the shardings that its operands need (`dist.operands`) and that its results have
    (`dist.shardings`), for each argument `dist.sharding`. Accumulators become partial as what is added to them is.
  }];
}

def InsertReshards : Pass<"insert-reshards", "::mlir::ModuleOp"> {
  let summary = "Inserts dist.reshard where a use wants another sharding than its producer gives";
  let description = [{
    Partial sums are added up once, right after their producer, into the place of their dimensions. Other moves stand
    before their first use in forward and again before their first use in backward. Removes `dist.operands`.
  }];
  let dependentDialects = ["::espalier::dist::DistDialect"];
}

def Localize : Pass<"localize", "::mlir::ModuleOp"> {
  let summary = "Rewrites joint functions to the local shapes of one device";
  let description = [{
    Each op by its own rule (the `localize` of ShardableOp), each reshard to reduce-scatters, all-reduces, all-gathers
    and slices. Statistics that several devices compute alike are weighted so that the sum over all devices counts them
    once. Arguments keep `dist.sharding`.
  }];
  let dependentDialects = ["::espalier::dist::DistDialect"];
}

def SplitPhases : Pass<"split-phases", "::mlir::ModuleOp"> {
  let summary = "Outlines forward, backward and evaluate of each segment and decides what is kept between them";
  let description = [{
    For each policy in a segment's `model.recompute` (none, selective, full) makes `@<segment>.<policy>.forward` and
    `.backward`, and once `@<segment>.evaluate`, which keeps nothing and is without dropout. Kept values are results of
    forward and arguments of backward with the role `saved`. `dist.keep_collectives` on the module keeps results of
    tensor-parallel sums under every policy. `dist.slice_inputs` keeps the incoming stream of the policy full as its slice
    over these axes, which backward gathers. Gradients of losses arrive in backward as the scalar `loss_scale`; a loss
    beside a stream is no part of evaluation. Of a segment with `model.split_backward` the gradients of weights that
    products make are a phase `.weight` of their own: what forward keeps for it has the role `saved_for_weights`, what
    backward hands over to it `saved_by_backward`.
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

def OverlapCommunication : Pass<"overlap-communication", "::mlir::ModuleOp"> {
  let summary = "Moves independent work between the start of a collective and the first use of its result";
  let description = [{
    A collective moves up to the producer of its operand, past another one only where that is needed later. Weight
    gradients, on which only accumulators depend, move behind the next collective where they hide nothing before it. No
    value changes.
  }];
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
    placed first, each in the smallest gap that is free over its lifetime; where that takes more than ever lives at once,
    other orders are tried. `exec.guard_bytes` on the module keeps so many bytes free behind each buffer; `exec.guards` on
    a program then lists them: offset, first and last instruction.
  }];
}

def PrintPtx : Pass<"print-ptx", "::mlir::ModuleOp"> {
  let summary = "Prints the PTX text of the module's kernels for GPUs; for tests and curiosity";
  let description = [{
    The text goes to standard output before the IR does: send that to /dev/null with `-o`.
  }];
}

#endif
