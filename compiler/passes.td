// All passes of the compiler, in the order of the pipeline.
#ifndef ESPALIER_COMPILER_PASSES
#define ESPALIER_COMPILER_PASSES

include "mlir/Pass/PassBase.td"

def Differentiate : Pass<"differentiate", "::mlir::ModuleOp"> {
  let summary = "Extends each segment to one joint function: forward, model.cotangent, backward";
  let description = [{
    Turns a segment `(stream, inputs, parameters) -> stream` into `(stream, inputs, parameters, accumulators) ->
    (stream, gradient of the incoming stream, new accumulators)`. Results with the role `loss` are differentiated, too.
    Accumulators have the type `model.gradient_type` of the module, or f32; those of a parameter with `sign_rate` are f32.
    Later passes see forward and backward in one function, so both use the same shardings.
  }];
}

def PropagateShardings : Pass<"propagate-shardings", "::mlir::ModuleOp"> {
  let summary = "Chooses a sharding for every value of the joint functions";
  let description = [{
    Reads the mesh and the axes of each named dimension from the module (`dist.mesh`, `dist.dims`,
    `dist.sequence_parallel`). Sets on each op the shardings that its operands need (`dist.operands`) and the shardings
    of its results (`dist.shardings`), and on each argument `dist.sharding`. An accumulator holds partial sums over the
    same axes as the terms that are added to it.
  }];
}

def InsertReshards : Pass<"insert-reshards", "::mlir::ModuleOp"> {
  let summary = "Inserts dist.reshard where an operand needs another sharding than its producer has";
  let description = [{
    Reduces partial sums once, right after their producer, to the sharding of their dimensions. Inserts every other
    reshard before its first use in forward and again before its first use in backward. Removes `dist.operands`.
  }];
  let dependentDialects = ["::espalier::dist::DistDialect"];
}

def Localize : Pass<"localize", "::mlir::ModuleOp"> {
  let summary = "Rewrites joint functions to the local shapes of one device";
  let description = [{
    Rewrites each op by its own rule (`localize` of ShardableOp). Rewrites each reshard to reduce-scatters, all-reduces,
    all-gathers and slices. Weights statistics that several devices compute alike, so that the sum over all devices
    counts them once. Keeps `dist.sharding` on arguments.
  }];
  let dependentDialects = ["::espalier::dist::DistDialect"];
}

def SplitPhases : Pass<"split-phases", "::mlir::ModuleOp"> {
  let summary = "Outlines forward, backward and evaluate of each segment and decides what is kept between them";
  let description = [{
    For each policy in a segment's `model.recompute` (none, selective, full), makes `@<segment>.<policy>.forward` and
    `@<segment>.<policy>.backward`. Makes `@<segment>.evaluate` once per segment; evaluation keeps no values and has no
    dropout. A module with the mode evaluate is not differentiated and has evaluate alone.

    Kept values are results of forward and arguments of backward with the role `saved`. `dist.keep_collectives` on the
    module keeps the results of tensor-parallel reductions under every policy. Under the policy full,
    `dist.slice_inputs` keeps the incoming stream as its slice over these axes, and backward gathers it. Gradients of
    losses reach backward as the scalar `loss_scale`. Evaluation leaves out a loss beside a stream.

    In a segment with `model.split_backward`, the weight gradients of matrix products form a phase
    `@<segment>.<policy>.weight`. Values that forward keeps for it have the role `saved_for_weights`. Values that
    backward passes to it have the role `saved_by_backward`.
  }];
}

def FormBuckets : Pass<"form-buckets", "::mlir::ModuleOp"> {
  let summary = "Forms the buckets of each segment: parameters that are reduced, updated and gathered together";
  let description = [{
    Puts parameters of a localized joint function into one bucket if their storage type, weight decay, partial axes,
    shard axes, optimizer and norm weight are equal. A tied parameter has a bucket of its own. An optimizer that needs
    whole matrices updates the weights of products of the layers; matrices of one shape share a bucket, and shards end
    between matrices. Reads `model.parameters`, `model.sizes`, `model.runs`, `exec.plan` (the ZeRO stage) and
    `exec.optimizer` (the optimizer and master weights). Makes one `exec.segment` per
    function with `model.segment`. For generation it makes one per `@<segment>.decode`, because decode and prefill share
    their parameters.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def BuildOptimizer : Pass<"build-optimizer", "::mlir::ModuleOp"> {
  let summary = "Makes the functions at the end of a step: the gradient norm and the update of each segment";
  let description = [{
    Adds `@<segment>.norm` and `@<segment>.update` for each `exec.segment`. Adds `@<segment>.add` if buckets accumulate
    shards; its argument with the role `scattered` is the shard of one micro-batch. Tensors are flat, `[element]`. A
    tensor is a whole bucket or, with the attribute `exec.share = ["dp"]`, the rank's ZeRO shard of the bucket.
    `model.name` names the bucket. Adds `@step.scalars`, a function without a body: its attribute `exec.max_grad_norm`
    is the norm for clipping, 0 for none. `exec.optimizer` has the
    hyperparameters. Buckets name their optimizer.
  }];
  let dependentDialects = ["::espalier::model::ModelDialect", "::mlir::func::FuncDialect"];
}

def LayOutRegions : Pass<"lay-out-regions", "::mlir::ModuleOp"> {
  let summary = "Assigns arguments and results of functions to their values and offsets in memory regions";
  let description = [{
    Sets `exec.offset`, `exec.value`, `exec.part` and `exec.bucket` on every argument and result whose role has a
    region. Sets `exec.region` where the region differs from the role: for buffers that ZeRO 2 and 3 gather. Parameters
    have the order of `exec.segment`. Kept values have the order of the results that define them. Records the sizes of
    the regions as `exec.region`. With the mode generate (`exec.mode`), each phase has its own inputs, and there are
    regions of caches and logits.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def FoldEpilogues : Pass<"fold-epilogues", "::mlir::ModuleOp"> {
  let summary = "Folds ops that follow a matrix product into the product's epilogue";
  let description = [{
    Turns a contraction and the ops around it into an exec.product. On all targets it folds the addition of a bias. For
    GPUs it also folds another addition, gelu, the derivative of gelu, and the sum over rows that is the gradient of a
    bias. Does not fold an op whose operands a fused kernel reads anyway, or that `exec.unfused_epilogues` names.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def FuseKernels : Pass<"fuse-kernels", "::mlir::ModuleOp"> {
  let summary = "Groups element-wise ops and reductions into exec.fused ops, one per kernel";
  let description = [{
    Grows row groups (norms, softmax, bias and activation, dropout and residual) along producers and consumers. Makes
    column groups of sums over rows. A column group recomputes its operands if that reads little, or joins the row group
    that reads or defines the same tensors.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def OverlapCommunication : Pass<"overlap-communication", "::mlir::ModuleOp"> {
  let summary = "Moves independent work between the start of a collective and the first use of its result";
  let description = [{
    Moves a collective up to the producer of its operand. A collective passes another collective only if the other
    result is needed later. Moves a weight gradient that only accumulators use behind the next collective, unless it
    already overlaps an earlier one. Does not change values.
  }];
}

def LowerToExec : Pass<"lower-to-exec", "::mlir::ModuleOp"> {
  let summary = "Lowers each function to an exec.program over buffers and each distinct fused body to a kernel";
  let description = [{
    Arguments and results lie in the regions of their roles. All other values get virtual buffers.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def PlanBuffers : Pass<"plan-buffers", "::mlir::ModuleOp"> {
  let summary = "Assigns virtual buffers to offsets in the workspace";
  let description = [{
    A buffer is live from its first to its last instruction. The buffers of a collective are live until its wait. Places
    the largest buffers first, each in the smallest gap that is free over its live range. If the result is larger than
    the largest sum of buffers that are live at one time, it tries other orders. `exec.guard_bytes` on the module
    reserves that many bytes behind each buffer. `exec.guards` on a program lists these guards: offset, first and last
    instruction.
  }];
}

def PropagateValueAxes : Pass<"propagate-value-axes", "::mlir::ModuleOp"> {
  let summary = "Finds the axes over which operands and results of collectives are sharded or hold partial sums";
  let description = [{
    Propagates shard axes and partial-sum axes from operands to results of each `exec.start` and back, until a fixed
    point over all programs. Programs pass values to each other by name. A rearrangement keeps partial sums partial.
    Sets `exec.axes` on each program with a collective. The attribute gives the `split` and `partial` axes of each value
    and the `reduction` of its terms.
  }];
}

def LinkPlan : Pass<"link-plan", "::mlir::ModuleOp"> {
  let summary = "Prints the plan of a module of kernels and programs as protobuf text, for tests";
  let description = [{
    Builds the tables of the plan as `espalier compile` does after the last phase, without machine code. The text goes
    to standard output before the IR. Send the IR to /dev/null with `-o`.
  }];
}

def PrintPtx : Pass<"print-ptx", "::mlir::ModuleOp"> {
  let summary = "Prints the PTX text of the module's CUDA kernels, for tests and debugging";
  let description = [{
    The text goes to standard output before the IR. Send the IR to /dev/null with `-o`.
  }];
}

#endif
