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
  let summary = "A kernel of the runtime: LibraryCall of plan.proto";
  let description = [{
    - (C1) function is one of plan.proto in lower case.
    - (C2) there is one type per buffer.
    - (C3) the last `outputs` buffers are written; those of attention_forward stand before the step, which it reads, and
      that of a matmul before its bias, where it has a fourth buffer.
    `accumulate` adds to what the last buffer holds unless the RUN says that its bucket is written first, `always_adds`
    adds whatever the RUN says: Store of plan.proto.
  }];
  let arguments = (ins StrAttr:$function, ArrayAttr:$buffers, TypeArrayAttr:$types, I64Attr:$outputs,
                       DenseI64ArrayAttr:$sizes, OptionalAttr<DenseF64ArrayAttr>:$floats,
                       OptionalAttr<ArrayAttr>:$scalars, UnitAttr:$transpose_a, UnitAttr:$transpose_b,
                       UnitAttr:$accumulate, UnitAttr:$always_adds, UnitAttr:$causal);
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

#endif
