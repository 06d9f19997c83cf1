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
    The iteration space is that of the body's op with most dimensions; its first `split` dimensions are rows, the
    others columns. `shape` is `row` (reductions over the columns), `column` (reductions over the rows) or `flat` (no
    reduction, operands full or without dimensions). Made by `fuse-kernels`, gone after `lower-to-exec`.
    - (C1) the body's arguments have the types of the inputs and its yield those of the results.
    - (C2) shape is row, column or flat.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, StrAttr:$shape, I64Attr:$split);
  let results = (outs Variadic<AnyRankedTensor>);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$shape `split` $split `(` $inputs `)` attr-dict `:` functional-type($inputs, results) $body";
  let hasVerifier = 1;
}

def Exec_ProductOp : Exec_Op<"product", [Pure]> {
  let summary = "A matrix product with what the library does on the way";
  let description = [{
    The first result is op(a) op(b) under the epilogue, as `model.contract` has it; `others` and the second result are
    the operands of the epilogue in runtime/functions.def. Made by `fold-epilogues`, gone after `lower-to-exec`.
    - (C1) epilogue is one of functions.def in lower case, and not none.
    - (C2) there are as many operands and results as it has; gelu's operand is a result where it is kept.
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b, Variadic<AnyRankedTensor>:$others, StrAttr:$epilogue);
  let results = (outs AnyRankedTensor:$c, Optional<AnyRankedTensor>:$extra);
  let assemblyFormat = "$epilogue $a `,` $b (`,` $others^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Exec_KernelOp : Exec_Op<"kernel", [Symbol, IsolatedFromAbove, SingleBlock]> {
  let summary = "The body of launches that differ only in sizes and run-time numbers";
  let description = [{
    The types are those of the first launch; sizes and origins are kernel scalars. Made by `lower-to-exec`. For GPUs
    `geometry` is the grid, and `parameters` is what decides the code besides the body: a kernel of another shape has
    no body but its name and these, `buffers` and `scalars` (how many a launch hands over) among them.
    - (C1) shape is row, column or flat, or there are parameters.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$shape, I64Attr:$split,
                       OptionalAttr<Exec_GeometryAttr>:$geometry, OptionalAttr<DictionaryAttr>:$parameters);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name $shape `split` $split attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Exec_YieldOp : Exec_Op<"yield", [Pure, Terminator, ParentOneOf<["FusedOp", "KernelOp"]>]> {
  let summary = "What a fused group stores";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

def Exec_ProgramOp : Exec_Op<"program", [Symbol, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "A subprogram: instructions run in order by every rank of a stage";
  let description = [{
    `buffer_types` holds the tensor in each virtual buffer, by number: sizes by named dimensions, which the planner reads.
    `plan-buffers` takes it away and sets `workspace_bytes`.
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
  let summary = "Runs a kernel over `extent` iterations; chunks given to threads are multiples of `grain`";
  let description = [{
    The last `outputs` buffers are written. `in_place` lists pairs (output, input) of buffer numbers that may be one
    place when the input is dead afterwards.
    - (C1) kernel names an exec.kernel.
    - (C2) extent and grain are positive.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, ArrayAttr:$buffers, I64Attr:$outputs, ArrayAttr:$scalars,
                       I64Attr:$extent, I64Attr:$grain, OptionalAttr<DenseI64ArrayAttr>:$in_place);
}

def Exec_CallOp : Exec_Instruction<"call"> {
  let summary = "A library function: LibraryCall of plan.proto";
  let description = [{
    The row of the function in runtime/functions.def says what the buffers, sizes, floats and scalars are.
    - (C1) function is one of functions.def in lower case.
    - (C2) there is one type per buffer.
    - (C3) buffers are exec.buffer.
    - (C4) epilogue, where there is one, is one of functions.def in lower case, and of a matmul.
    - (C5) there are as many buffers as the row has operands, of the types that it says. How many elements each has is
      the plan verifier's to say.
    `accumulate` adds to what the operand with `store` holds unless the RUN says that its bucket is written first,
    `always_adds` adds whatever the RUN says: Store of plan.proto.
  }];
  let arguments = (ins StrAttr:$function, ArrayAttr:$buffers, TypeArrayAttr:$types, DenseI64ArrayAttr:$sizes,
                       OptionalAttr<DenseF64ArrayAttr>:$floats, OptionalAttr<ArrayAttr>:$scalars,
                       UnitAttr:$transpose_a, UnitAttr:$transpose_b, UnitAttr:$accumulate, UnitAttr:$always_adds,
                       UnitAttr:$causal, OptionalAttr<StrAttr>:$epilogue);
  let extraClassDeclaration = [{
    /// What the function's row says of each buffer, in order.
    std::vector<const ::espalier::rt::OperandSignature *> operands();
  }];
}

def Exec_StartOp : Exec_Instruction<"start"> {
  let summary = "Begins a collective; its buffers are in use until the wait of the same id";
  let description = [{
    - (C1) kind is one of those that an instruction may start.
    - (C2) reduction is sum or max.
    Parts are equal and lie in the order of ranks.
  }];
  let arguments = (ins I64Attr:$id, StrAttr:$kind, StrAttr:$reduction, StrArrayAttr:$axes, TypeAttr:$type,
                       Exec_BufferAttr:$from, Exec_BufferAttr:$to, I64Attr:$elements);
}

def Exec_WaitOp : Exec_Instruction<"wait"> {
  let summary = "Ends the collective of the same id";
  let description = [{ - (C1) an exec.start of the same id stands before it. }];
  let arguments = (ins I64Attr:$id);
}

// What a plan says once, beside its programs.

class Exec_Table<string mnemonic, list<Trait> traits = []> : Exec_Op<mnemonic, traits> {
  let hasVerifier = 1;
}

def Exec_SegmentOp : Exec_Table<"segment", [HasParent<"::mlir::ModuleOp">, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "What a call of one kind of segment keeps in the regions parameters, gradients and state";
  let description = [{
    Made by `form-buckets`, one per kind; stays to the end. With `masters` an f32 master stands before the two moments in
    the state of each bucket. Under ZeRO 2 and 3 what is whole only for a while has bytes of its own. A segment that has
    tied parameters of another one on its stage counts the bytes of both.
    - (C1) bytes are at least 0.
  }];
  let arguments = (ins StrAttr:$kind, UnitAttr:$masters, I64Attr:$parameter_bytes, I64Attr:$gradient_bytes,
                       I64Attr:$state_bytes, OptionalAttr<I64Attr>:$whole_gradient_bytes,
                       OptionalAttr<I64Attr>:$whole_stored_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$kind attr-dict-with-keyword $body";
}

def Exec_BucketOp : Exec_Table<"bucket", [HasParent<"SegmentOp">, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "Parameters of a segment that are reduced, updated and gathered as one";
  let description = [{
    Made by `form-buckets`, stays to the end: Bucket of plan.proto. `number` counts the buckets of the plan; a tied one
    has its owner's. `elements` are those of one rank, `part_elements` of its share over the axes `share`. `holders` are the
    stages of a bucket that is tied across stages; `tied` says that another segment owns it, `tied_here` that this one
    lies on the same stage, where it has the storage and does the update. Offsets are bytes in the regions of a call.
    With `whole_gradient_offset` (ZeRO 2) its accumulator is the rank's share, and calls add a micro-batch's gradient up in
    the region whole_gradients; with `whole_stored_offset` (ZeRO 3) its parameters are the share, too, and calls read them
    in the region whole_parameters.
    `build-transfers` adds the transfers that sum its gradients once a step, in their order, the one that scatters those of
    a micro-batch, and the one that gathers its shares.
    - (C1) elements are a multiple of part_elements, which are above 0.
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
  let summary = "One parameter of a bucket, at element `first`: its local tensor, its whole shape, its initial values";
  let description = [{
    Made by `form-buckets`, stays to the end: Parameter of plan.proto. `padded_shape` is the whole tensor's with the
    vocabulary's padding, `shape` without.
    - (C1) the sharding, the shape and the padded shape have one entry per dimension of the local tensor.
    - (C2) initializer is one of plan.proto.
  }];
  let arguments = (ins StrAttr:$name, TypeAttr:$local, DenseI64ArrayAttr:$shape, DenseI64ArrayAttr:$padded_shape,
                       AnyAttr:$sharding, I64Attr:$first, StrAttr:$initializer, F64Attr:$stddev,
                       OptionalAttr<StrAttr>:$tied_to);
  let assemblyFormat = "$name attr-dict";
}

def Exec_RegionOp : Exec_Table<"region", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "Bytes that a region holds of one thing";
  let description = [{
    Made by `lay-out-regions`, stays to the end: of `inputs` each input of a slot with its offset, of `saved` and its like
    what a segment keeps under a policy, of `cache` what it keeps in generation, of `stream_in` and `logits` their value.
    - (C1) region is one of plan.proto.
    - (C2) offset and bytes are at least 0.
  }];
  let arguments = (ins StrAttr:$region, StrAttr:$holds, I64Attr:$offset, I64Attr:$bytes);
  let assemblyFormat = "$region `of` $holds attr-dict";
}

def Exec_ValueOp : Exec_Table<"value", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "A value that passes between programs, or that a transfer moves";
  let description = [{
    Made by `lay-out-regions` and `build-transfers`, stays to the end: Value of plan.proto, in its order. `whole` names
    the value of which it is `elements` elements from `first` on. Values that one program alone has are not listed: its
    buffers name them.
    - (C1) type is f32, bf16, f16 or i32, and there is at least one element.
  }];
  let arguments = (ins StrAttr:$name, TypeAttr:$type, I64Attr:$elements, OptionalAttr<StrArrayAttr>:$split,
                       OptionalAttr<StrArrayAttr>:$partial, UnitAttr:$per_micro_batch, UnitAttr:$resident,
                       OptionalAttr<StrAttr>:$whole, DefaultValuedAttr<I64Attr, "0">:$first,
                       DefaultValuedAttr<I64Attr, "0">:$additions);
  let assemblyFormat = "$name $type `x` $elements attr-dict";
}

def Exec_EntryOp : Exec_Table<"entry", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "A list of actions that a run calls by name: how many micro-batches, which regions it finds and writes";
  let description = [{
    Made by `build-transfers`, stays to the end: Entry of plan.proto.
    - (C1) regions are those of plan.proto.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$micro_batches, StrArrayAttr:$finds, StrArrayAttr:$writes);
  let assemblyFormat = "$name attr-dict";
}

def Exec_TransferOp : Exec_Table<"transfer", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "What a list of actions starts and waits for: it moves bytes between ranks, or to and from the host";
  let description = [{
    Made by `build-transfers`, stays to the end: Transfer of plan.proto, in its order. The group are the ranks that
    differ in `axes` only, of `stages` where these are given. Collectives inside of a program are no transfers here but
    its `exec.start`.
    - (C1) kind and reduction are of plan.proto.
    - (C2) from and to are buffers in pairs; a send has no `to` and a receive no `from`.
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$kind, DefaultValuedStrAttr<StrAttr, "sum">:$reduction, StrAttr:$queue,
                       OptionalAttr<StrArrayAttr>:$axes, OptionalAttr<DenseI64ArrayAttr>:$stages,
                       DefaultValuedAttr<I64Attr, "0">:$shift, DefaultValuedAttr<I64Attr, "0">:$line,
                       ArrayAttr:$from, ArrayAttr:$to);
  let assemblyFormat = "$name $kind `on` $queue attr-dict";
}

// A stage.

class Exec_StagePart<string mnemonic, list<Trait> traits = []> :
    Exec_Table<mnemonic, !listconcat([HasParent<"StageOp">], traits)>;

def Exec_StageOp : Exec_Table<"stage", [HasParent<"::mlir::ModuleOp">, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "What the ranks of one pipeline stage have and do";
  let description = [{
    Made by `assign-stages`, in the order of the stages: lifetimes, places, layers in the order of the forward pass and the
    call `step` behind them, chunks, exchanges, bytes by class. `expand-schedule` adds a list for each entry.
    - (C1) there are arena bytes for device and host.
  }];
  let arguments = (ins DenseI64ArrayAttr:$arena_bytes, I64Attr:$first_layer, I64Attr:$layers);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword $body";
}

def Exec_LifetimeOp : Exec_StagePart<"lifetime"> {
  let summary = "Slots that come and go together; the first of a stage is resident";
  let description = [{ - (C1) there is at least one slot. }];
  let arguments = (ins StrAttr:$name, I64Attr:$slots, UnitAttr:$rotates);
  let assemblyFormat = "$name `slots` $slots attr-dict";
}

def Exec_PlaceOp : Exec_StagePart<"place"> {
  let summary = "Room for a region in every slot of a lifetime";
  let description = [{
    - (C1) memory is device or host.
    - (C2) lifetime counts a lifetime of the stage.
  }];
  let arguments = (ins I64Attr:$lifetime, StrAttr:$memory, I64Attr:$bytes, DenseI64ArrayAttr:$offsets, I64Attr:$stride,
                       UnitAttr:$exchanged, OptionalAttr<StrAttr>:$memory_class);
  let assemblyFormat = "attr-dict";
}

def Exec_LayerOp : Exec_StagePart<"layer"> {
  let summary = "A call: one layer with its programs, or `step` with those of a step's end (`layer` is -1)";
  let description = [{
    `programs` names a program by role.
    - (C1) programs are of the module, by a role of plan.proto.
    - (C2) bindings bind a region of plan.proto to a place of the stage.
    - (C3) buckets are uses.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$layer, DictionaryAttr:$programs, ArrayAttr:$bindings, ArrayAttr:$buckets);
  let assemblyFormat = "$name attr-dict";
}

def Exec_ChunkOp : Exec_StagePart<"chunk"> {
  let summary = "Layers that run together, and the lifetimes whose slots a RUN of them names";
  let description = [{ - (C1) the calls are layers of the stage. }];
  let arguments = (ins StrAttr:$name, I64Attr:$first_call, I64Attr:$calls, DenseI64ArrayAttr:$lifetimes);
  let assemblyFormat = "$name attr-dict";
}

def Exec_ExchangeOp : Exec_StagePart<"exchange"> {
  let summary = "What the host fills before an entry or reads after it";
  let description = [{
    `split` has the axes over which samples lie, and those of positions.
    - (C1) call counts a layer of the stage.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$call, Exec_BufferAttr:$buffer, UnitAttr:$filled_by_host, ArrayAttr:$split,
                       StrArrayAttr:$entries);
  let assemblyFormat = "$name attr-dict";
}

def Exec_MemoryOp : Exec_StagePart<"memory"> {
  let summary = "Bytes of the device's arena by class, for people";
  let description = [{ - (C1) bytes are at least 0. }];
  let arguments = (ins StrAttr:$name, I64Attr:$bytes);
  let assemblyFormat = "$name `bytes` $bytes attr-dict";
}

def Exec_ListOp : Exec_StagePart<"list", [NoTerminator, SingleBlock]> {
  let summary = "The actions of a stage in one entry, as blocks";
  let description = [{
    Made by `expand-schedule`.
    - (C1) entry names an entry of the module.
  }];
  let arguments = (ins StrAttr:$entry);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$entry attr-dict-with-keyword $body";
}

def Exec_BlockOp : Exec_Table<"block", [HasParent<"ListOp">, NoTerminator, SingleBlock]> {
  let summary = "Actions, `rounds` times; in each round every micro-batch is larger by `advance`";
  let description = [{ - (C1) there is at least one round. }];
  let arguments = (ins I64Attr:$rounds, I64Attr:$advance);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`rounds` $rounds `advance` $advance attr-dict-with-keyword $body";
}

class Exec_Action<string mnemonic> : Exec_Table<mnemonic, [HasParent<"BlockOp">]>;

def Exec_RunOp : Exec_Action<"run"> {
  let summary = "Runs the programs of a role, call by call";
  let description = [{
    `slots` are those of the chunk's lifetimes. Gradients of the buckets in `first` are written, not added to.
    - (C1) role is of plan.proto.
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
  let summary = "Starts transfers, in their order";
  let description = [{ - (C1) flights are of layers of the stage. }];
}

def Exec_WaitTransfersOp : Exec_Flights<"wait_transfers"> {
  let summary = "Holds back what follows until flights that were started have ended";
  let description = [{ - (C1) flights are of layers of the stage. }];
}

#endif
