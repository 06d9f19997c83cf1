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
    `.backward`, and once `@<segment>.evaluate`, which keeps nothing and is without dropout; with `exec.evaluation` on the
    module, which is not differentiated then, that alone. Kept values are results of
    forward and arguments of backward with the role `saved`. `dist.keep_collectives` on the module keeps results of
    tensor-parallel sums under every policy. `dist.slice_inputs` keeps the incoming stream of the policy full as its slice
    over these axes, which backward gathers. Gradients of losses arrive in backward as the scalar `loss_scale`; a loss
    beside a stream is no part of evaluation. Of a segment with `model.split_backward` the gradients of weights that
    products make are a phase `.weight` of their own: what forward keeps for it has the role `saved_for_weights`, what
    backward hands over to it `saved_by_backward`.
  }];
}

def FormBuckets : Pass<"form-buckets", "::mlir::ModuleOp"> {
  let summary = "Lists the buckets of each segment: parameters that are reduced, updated and gathered as one";
  let description = [{
    Parameters of a localized joint function with equal storage type, decay, partial axes, share axes and norm weight lie
    side by side; tied ones have a bucket each. Reads `model.parameters`, `model.sizes`, `exec.plan` (the ZeRO stage) and
    `exec.optimizer` (masters); makes an `exec.segment` per function with `model.segment`, in generation per
    `@<segment>.decode`, whose parameters prefill has, too.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def BuildOptimizer : Pass<"build-optimizer", "::mlir::ModuleOp"> {
  let summary = "Makes the end of a step: the norm and the update of each segment's buckets";
  let description = [{
    Adds `@<segment>.norm` and `@<segment>.update` for each `exec.segment`, and `@<segment>.add` where buckets accumulate
    shares: the role `scattered` is a micro-batch's. Tensors are flat, [element], a whole bucket or,
    with the attribute `exec.share = ["dp"]`, the rank's ZeRO share of it; `model.name` is the bucket's. Adds
    `@step.scalars`, without a body: its attribute `exec.max_grad_norm` (0: no clipping) says what becomes of the sums.
    Numbers of AdamW are those of `exec.optimizer`.
  }];
  let dependentDialects = ["::espalier::model::ModelDialect", "::mlir::func::FuncDialect"];
}

def LayOutRegions : Pass<"lay-out-regions", "::mlir::ModuleOp"> {
  let summary = "Says where arguments and results of functions lie in their regions, and which values they hold";
  let description = [{
    Sets `exec.offset`, `exec.value`, `exec.part` and `exec.bucket` on every argument and result whose role has a region,
    and `exec.region` where it is not the role's: what is whole for a while, under ZeRO 2 and 3;
    parameters lie as `exec.segment` says, what a policy keeps in the order of the results that make it. Lists the sizes as
    `exec.region`. With `exec.generation` on the module inputs are those of each phase, and there are caches and logits.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def FoldEpilogues : Pass<"fold-epilogues", "::mlir::ModuleOp"> {
  let summary = "Lets matrix products do what follows them and costs nothing there";
  let description = [{
    A contraction with the bias that is added to it, and for GPUs with another addition, gelu, the derivative of gelu or the
    sum over rows that is the gradient of a bias, becomes an exec.product. What a kernel would have at hand anyway
    stays, and what `exec.unfused_epilogues` names.
  }];
  let dependentDialects = ["::espalier::exec::ExecDialect"];
}

def FuseKernels : Pass<"fuse-kernels", "::mlir::ModuleOp"> {
  let summary = "Groups element-wise ops and reductions into exec.fused, one per kernel";
  let description = [{
    Row groups (norms, softmax, bias and activation, dropout and residual) grow along producers and consumers; sums
    over rows become column groups that compute their operands again where that reads little, or join the row group that
    reads or makes the same tensors.
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
  let summary = "Prints the PTX text of the module's kernels for GPUs; for tests and curiosity";
  let description = [{
    The text goes to standard output before the IR does: send that to /dev/null with `-o`.
  }];
}

#endif
