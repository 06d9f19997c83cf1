// Ops of the exec dialect: fused groups and kernels on tensors, instructions on buffers.
#ifndef ESPALIER_EXEC_OPS
#define ESPALIER_EXEC_OPS

include "dialects/exec/dialect.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Exec_Op<string mnemonic, list<Trait> traits = []> : Op<Exec_Dialect, mnemonic, traits>;

def Exec_FusedOp : Exec_Op<"fused", [Pure, IsolatedFromAbove, SingleBlock]> {
  let summary = "A group of element-wise ops and reductions that becomes one kernel";
  let description = [{
    The body's op with the most dimensions defines the iteration space. The first `split` dimensions are rows, the
    others columns. `shape` is `row` (reductions over columns), `column` (reductions over rows) or `flat` (no reduction;
    operands are full or have no dimensions). `fuse-kernels` creates it, and `lower-to-exec` removes it.
    - (C1) the body's arguments have the types of the inputs, and its yield has the types of the results.
    - (C2) shape is row, column or flat.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, StrAttr:$shape, I64Attr:$split);
  let results = (outs Variadic<AnyRankedTensor>);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$shape `split` $split `(` $inputs `)` attr-dict `:` functional-type($inputs, results) $body";
  let hasVerifier = 1;
}

def Exec_ProductOp : Exec_Op<"product", [Pure]> {
  let summary = "A matrix product with an epilogue that the library computes";
  let description = [{
    The first result is the product of a and b, as in `model.contract`, after the epilogue. `others` and the second
    result are the epilogue's operands in runtime/functions.def. `fold-epilogues` creates it, and `lower-to-exec`
    removes it.
    - (C1) epilogue is one of functions.def in lower case, and not none.
    - (C2) operands and results are those of the epilogue; gelu's operand is a result if it is saved.
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b, Variadic<AnyRankedTensor>:$others, StrAttr:$epilogue);
  let results = (outs AnyRankedTensor:$c, Optional<AnyRankedTensor>:$extra);
  let assemblyFormat = "$epilogue $a `,` $b (`,` $others^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Exec_KernelOp : Exec_Op<"kernel", [Symbol, IsolatedFromAbove, SingleBlock]> {
  let summary = "The body of launches that differ only in sizes and run-time numbers";
  let description = [{
    The types are those of the first launch; sizes and origins are scalars of the kernel. `lower-to-exec` creates it.
    For GPUs, `geometry` is the grid, and `parameters` are the properties besides the body that determine the code. A
    kernel of any other shape has no body: its shape and its parameters define it. The parameters include `buffers` and
    `scalars`, the numbers of buffers and scalars of a launch.
    - (C1) shape is row, column or flat, or there are parameters.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$shape, I64Attr:$split,
                       OptionalAttr<Exec_GeometryAttr>:$geometry, OptionalAttr<DictionaryAttr>:$parameters);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name $shape `split` $split attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Exec_YieldOp : Exec_Op<"yield", [Pure, Terminator, ParentOneOf<["FusedOp", "KernelOp"]>]> {
  let summary = "Ends the body of a fused group or kernel with the values that it stores";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

def Exec_ProgramOp : Exec_Op<"program", [Symbol, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "A subprogram: instructions that every rank of a stage runs in order";
  let description = [{
    `buffer_types` has the tensor type of each virtual buffer, by number. The planner reads sizes by named dimension
    from it. `plan-buffers` removes it and sets `workspace_bytes`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<TypeArrayAttr>:$buffer_types,
                       OptionalAttr<I64Attr>:$workspace_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
}

class Exec_Instruction<string mnemonic> : Exec_Op<mnemonic, [HasParent<"ProgramOp">]> {
  let assemblyFormat = "attr-dict";
  let hasVerifier = 1;
}

def Exec_LaunchOp : Exec_Instruction<"launch"> {
  let summary = "Runs a kernel over `extent` iterations; each thread gets a multiple of `grain` iterations";
  let description = [{
    The last `outputs` buffers are written. `in_place` lists pairs (output, input) of buffer numbers that may share
    memory if the input is dead afterwards.
    - (C1) kernel names an exec.kernel.
    - (C2) extent and grain are positive.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, ArrayAttr:$buffers, I64Attr:$outputs, ArrayAttr:$scalars,
                       I64Attr:$extent, I64Attr:$grain, OptionalAttr<DenseI64ArrayAttr>:$in_place);
}

def Exec_CallOp : Exec_Instruction<"call"> {
  let summary = "Calls a library function: LibraryCall of plan.proto";
  let description = [{
    The function's row in runtime/functions.def defines the buffers, sizes, floats and scalars.
    - (C1) function is one of functions.def in lower case.
    - (C2) there is one type per buffer.
    - (C3) buffers are exec.buffer.
    - (C4) an epilogue is one of functions.def in lower case, and only a matmul has one.
    - (C5) the buffers match the row's operands in number and types. The plan verifier checks the elements of each.

    The operand with `store` is overwritten, unless a flag is set (Store of plan.proto). `accumulate` adds to the
    operand, unless `first` of the RUN lists its bucket. `always_adds` always adds.
  }];
  let arguments = (ins StrAttr:$function, ArrayAttr:$buffers, TypeArrayAttr:$types, DenseI64ArrayAttr:$sizes,
                       OptionalAttr<DenseF64ArrayAttr>:$floats, OptionalAttr<ArrayAttr>:$scalars,
                       UnitAttr:$transpose_a, UnitAttr:$transpose_b, UnitAttr:$accumulate, UnitAttr:$always_adds,
                       UnitAttr:$causal, OptionalAttr<StrAttr>:$epilogue);
  let extraClassDeclaration = [{
    /// Returns the declaration of each buffer in the function's row, in order.
    std::vector<const ::espalier::rt::OperandSignature *> operands();
  }];
}

def Exec_StartOp : Exec_Instruction<"start"> {
  let summary = "Starts a collective; its buffers are in use until the wait with the same id";
  let description = [{
    - (C1) kind is one that an instruction may start.
    - (C2) reduction is sum or max.
    Shards are equal and in the order of ranks.
  }];
  let arguments = (ins I64Attr:$id, StrAttr:$kind, StrAttr:$reduction, StrArrayAttr:$axes, TypeAttr:$type,
                       Exec_BufferAttr:$from, Exec_BufferAttr:$to, I64Attr:$elements);
}

def Exec_WaitOp : Exec_Instruction<"wait"> {
  let summary = "Waits for the collective with the same id";
  let description = [{ - (C1) an exec.start with the same id precedes it. }];
  let arguments = (ins I64Attr:$id);
}

// The tables of a plan.

class Exec_Table<string mnemonic, list<Trait> traits = []> : Exec_Op<mnemonic, traits> {
  let hasVerifier = 1;
}

def Exec_SegmentOp :
    Exec_Table<"segment", [HasParent<"::mlir::ModuleOp">, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "The buckets of one kind of segment, and the bytes of a call in parameters, gradients and state";
  let description = [{
    `form-buckets` creates one per kind; it stays to the end. With `masters`, the state of each bucket begins with an
    f32 master copy, before the two moments. Under ZeRO 2 and 3, gathered buffers have separate byte counts. If a
    segment uses tied parameters of another segment on its stage, the bytes include both.
    - (C1) bytes are at least 0.
  }];
  let arguments = (ins StrAttr:$kind, UnitAttr:$masters, I64Attr:$parameter_bytes, I64Attr:$gradient_bytes,
                       I64Attr:$state_bytes, OptionalAttr<I64Attr>:$whole_gradient_bytes,
                       OptionalAttr<I64Attr>:$whole_stored_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$kind attr-dict-with-keyword $body";
}

def Exec_BucketOp : Exec_Table<"bucket", [HasParent<"SegmentOp">, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "Parameters of a segment that are reduced, updated and gathered together";
  let description = [{
    `form-buckets` creates it, and it stays to the end: Bucket of plan.proto. `number` is the bucket's index in the
    plan; a tied bucket has the number of its owner. `elements` counts a rank's elements, and `part_elements` those of
    its shard over the axes `share`. Offsets are in bytes, in the regions of a call.

    `holders` lists the stages of a bucket that is tied across stages. `tied` means that another segment owns the
    bucket. `tied_here` means that the owner is on the same stage; it has the storage and runs the update.

    With `whole_gradient_offset` (ZeRO 2), the accumulator is the rank's shard, and calls add a micro-batch's gradient
    in the region whole_gradients. With `whole_stored_offset` (ZeRO 3), the parameters are also the shard, and calls
    read the gathered parameters in the region whole_parameters.

    `build-transfers` sets the transfers: `sums`, which sum the gradients once per step, in order; `scatter`, which
    scatters the gradients of a micro-batch; and `gather`, which gathers the shards.

    - (C1) elements are a multiple of part_elements, which is above 0.
    - (C2) axes are those of a mesh.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$number, TypeAttr:$stored, I64Attr:$elements, I64Attr:$part_elements,
                       StrArrayAttr:$partial, StrArrayAttr:$share, DenseI64ArrayAttr:$holders, UnitAttr:$decays,
                       F64Attr:$norm_weight, I64Attr:$stored_offset, I64Attr:$gradient_offset, I64Attr:$state_offset,
                       OptionalAttr<I64Attr>:$whole_gradient_offset, OptionalAttr<I64Attr>:$whole_stored_offset,
                       UnitAttr:$tied, UnitAttr:$tied_here, OptionalAttr<StrArrayAttr>:$sums,
                       OptionalAttr<StrAttr>:$scatter, OptionalAttr<StrAttr>:$gather);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name attr-dict-with-keyword $body";
}

def Exec_ParameterOp : Exec_Table<"parameter", [HasParent<"BucketOp">]> {
  let summary = "One parameter of a bucket, at element `first`: local tensor, unsharded shape, initial values";
  let description = [{
    `form-buckets` creates it, and it stays to the end: Parameter of plan.proto. `padded_shape` is the shape of the
    unsharded tensor with the padding of the vocabulary, `shape` without.
    - (C1) the sharding, the shape and the padded shape have one entry per dimension of the local tensor.
    - (C2) initializer is one of plan.proto.
  }];
  let arguments = (ins StrAttr:$name, TypeAttr:$local, DenseI64ArrayAttr:$shape, DenseI64ArrayAttr:$padded_shape,
                       AnyAttr:$sharding, I64Attr:$first, StrAttr:$initializer, F64Attr:$stddev,
                       OptionalAttr<StrAttr>:$tied_to);
  let assemblyFormat = "$name attr-dict";
}

def Exec_RegionOp : Exec_Table<"region", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "One tensor's or segment's byte range inside a region";
  let description = [{
    `lay-out-regions` creates it, and it stays to the end. The region `inputs` has one per input, at its offset in a
    ring slot. `saved` and the other saved regions have one per segment and recompute policy, and `cache` has one per
    segment. `stream_in` and `logits` have one for their value.
    - (C1) region is one of plan.proto.
    - (C2) offset and bytes are at least 0.
  }];
  let arguments = (ins StrAttr:$region, StrAttr:$holds, I64Attr:$offset, I64Attr:$bytes);
  let assemblyFormat = "$region `of` $holds attr-dict";
}

def Exec_ValueOp : Exec_Table<"value", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "A value that passes between programs, or that a transfer moves";
  let description = [{
    `lay-out-regions` and `build-transfers` create it, and it stays to the end: Value of plan.proto, in the plan's
    order. If `whole` is set, the value is a slice: `elements` elements of `whole` from `first` on. Values inside one
    program are not listed, because its buffers name them.
    - (C1) type is f32, bf16, f16 or i32, and there is at least one element.
  }];
  let arguments = (ins StrAttr:$name, TypeAttr:$type, I64Attr:$elements, OptionalAttr<StrArrayAttr>:$split,
                       OptionalAttr<StrArrayAttr>:$partial, UnitAttr:$per_micro_batch, UnitAttr:$resident,
                       OptionalAttr<StrAttr>:$whole, DefaultValuedAttr<I64Attr, "0">:$first,
                       DefaultValuedAttr<I64Attr, "0">:$additions);
  let assemblyFormat = "$name $type `x` $elements attr-dict";
}

def Exec_EntryOp : Exec_Table<"entry", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "An entry of the plan, such as train_step: its micro-batches and the regions that it finds and writes";
  let description = [{
    `build-transfers` creates it, and it stays to the end: Entry of plan.proto.
    - (C1) regions are those of plan.proto.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$micro_batches, StrArrayAttr:$finds, StrArrayAttr:$writes);
  let assemblyFormat = "$name attr-dict";
}

def Exec_TransferOp : Exec_Table<"transfer", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "A transfer between ranks, or between device and host, that instruction streams start and wait for";
  let description = [{
    `build-transfers` creates it, and it stays to the end: Transfer of plan.proto, in the plan's order. The group has
    the ranks that differ only in `axes`, or those of them that are in `stages`. Collectives inside a program are
    `exec.start` and not listed here.
    - (C1) kind and reduction are those of plan.proto.
    - (C2) from and to are buffers in pairs; a send has no `to` and a receive no `from`.
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$kind, DefaultValuedStrAttr<StrAttr, "sum">:$reduction, StrAttr:$queue,
                       OptionalAttr<StrArrayAttr>:$axes, OptionalAttr<DenseI64ArrayAttr>:$stages,
                       DefaultValuedAttr<I64Attr, "0">:$shift, DefaultValuedAttr<I64Attr, "0">:$line,
                       ArrayAttr:$from, ArrayAttr:$to);
  let assemblyFormat = "$name $kind `on` $queue attr-dict";
}

// The parts of a stage.

class Exec_StagePart<string mnemonic, list<Trait> traits = []> :
    Exec_Table<mnemonic, !listconcat([HasParent<"StageOp">], traits)>;

def Exec_StageOp : Exec_Table<"stage", [HasParent<"::mlir::ModuleOp">, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "The memory, calls and instruction streams of one pipeline stage";
  let description = [{
    `assign-stages` creates the stages in order. A stage has lifetimes, allocations, layers in forward order followed by
    the call `step`, chunks, host staging buffers, and bytes by class. `expand-schedule` adds an instruction stream per
    entry.
    - (C1) there are arena bytes for device and host.
  }];
  let arguments = (ins DenseI64ArrayAttr:$arena_bytes, I64Attr:$first_layer, I64Attr:$layers);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword $body";
}

def Exec_LifetimeOp : Exec_StagePart<"lifetime"> {
  let summary = "A class of values with equal live ranges, and its ring slots; a stage's first lifetime is resident";
  let description = [{ - (C1) there is at least one slot. }];
  let arguments = (ins StrAttr:$name, I64Attr:$slots, UnitAttr:$rotates);
  let assemblyFormat = "$name `slots` $slots attr-dict";
}

def Exec_PlaceOp : Exec_StagePart<"place"> {
  let summary = "An allocation for a region, with one offset per ring slot of its lifetime";
  let description = [{
    - (C1) memory is device or host.
    - (C2) lifetime is the number of a lifetime of the stage.
  }];
  let arguments = (ins I64Attr:$lifetime, StrAttr:$memory, I64Attr:$bytes, DenseI64ArrayAttr:$offsets, I64Attr:$stride,
                       UnitAttr:$exchanged, OptionalAttr<StrAttr>:$memory_class);
  let assemblyFormat = "attr-dict";
}

def Exec_LayerOp : Exec_StagePart<"layer"> {
  let summary = "A call: one layer with its programs, or `step` with the programs at a step's end (`layer` is -1)";
  let description = [{
    `programs` maps roles to programs.
    - (C1) roles are those of plan.proto, and programs are in the module.
    - (C2) bindings bind a region of plan.proto to an allocation of the stage.
    - (C3) buckets are bucket uses.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$layer, DictionaryAttr:$programs, ArrayAttr:$bindings,
                       ArrayAttr:$buckets);
  let assemblyFormat = "$name attr-dict";
}

def Exec_ChunkOp : Exec_StagePart<"chunk"> {
  let summary = "Layers that run together, and the lifetimes whose ring slots a RUN selects";
  let description = [{ - (C1) the calls are layers of the stage. }];
  let arguments = (ins StrAttr:$name, I64Attr:$first_call, I64Attr:$calls, DenseI64ArrayAttr:$lifetimes);
  let assemblyFormat = "$name attr-dict";
}

def Exec_ExchangeOp : Exec_StagePart<"exchange"> {
  let summary = "A host staging buffer that the host fills before an entry or reads after it";
  let description = [{
    `split` has the axes that shard the samples, then those that shard the positions.
    - (C1) call is the number of a layer of the stage.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$call, Exec_BufferAttr:$buffer, UnitAttr:$filled_by_host,
                       ArrayAttr:$split, StrArrayAttr:$entries);
  let assemblyFormat = "$name attr-dict";
}

def Exec_MemoryOp : Exec_StagePart<"memory"> {
  let summary = "The bytes of one class of device memory, for reports";
  let description = [{ - (C1) bytes are at least 0. }];
  let arguments = (ins StrAttr:$name, I64Attr:$bytes);
  let assemblyFormat = "$name `bytes` $bytes attr-dict";
}

def Exec_ListOp : Exec_StagePart<"list", [NoTerminator, SingleBlock]> {
  let summary = "The instruction stream of a stage in one entry, as blocks";
  let description = [{
    `expand-schedule` creates it.
    - (C1) entry names an entry of the module.
  }];
  let arguments = (ins StrAttr:$entry);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$entry attr-dict-with-keyword $body";
}

def Exec_BlockOp : Exec_Table<"block", [HasParent<"ListOp">, NoTerminator, SingleBlock]> {
  let summary = "A loop of `rounds` rounds over actions; each round adds `advance` to every micro-batch";
  let description = [{ - (C1) there is at least one round. }];
  let arguments = (ins I64Attr:$rounds, I64Attr:$advance);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`rounds` $rounds `advance` $advance attr-dict-with-keyword $body";
}

class Exec_Action<string mnemonic> : Exec_Table<mnemonic, [HasParent<"BlockOp">]>;

def Exec_RunOp : Exec_Action<"run"> {
  let summary = "Runs the programs of a role, call by call";
  let description = [{
    `slots` has one ring slot per lifetime of the chunk. Gradients of the buckets in `first` are overwritten, not added
    to.
    - (C1) role is one of plan.proto.
    - (C2) the calls are layers of the stage.
  }];
  let arguments = (ins StrAttr:$role, I64Attr:$first_call, I64Attr:$calls, UnitAttr:$backwards, I64Attr:$micro_batch,
                       DenseI64ArrayAttr:$slots, DenseI64ArrayAttr:$first);
  let assemblyFormat = "$role attr-dict";
}

class Exec_Flights<string mnemonic> : Exec_Action<mnemonic> {
  let arguments = (ins ArrayAttr:$flights);
  let assemblyFormat = "$flights attr-dict";
}

def Exec_StartTransfersOp : Exec_Flights<"start_transfers"> {
  let summary = "Starts transfers in the listed order";
  let description = [{ - (C1) flights are transfers of layers of the stage. }];
}

def Exec_WaitTransfersOp : Exec_Flights<"wait_transfers"> {
  let summary = "Blocks queue 0 until the in-flight transfers have ended";
  let description = [{ - (C1) flights are transfers of layers of the stage. }];
}

#endif
