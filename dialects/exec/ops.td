// Ops of the exec dialect: fused groups and kernels on tensors, instructions on buffers.
#ifndef ESPALIER_EXEC_OPS
#define ESPALIER_EXEC_OPS

include "dialects/dist/dialect.td"
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
    result are the epilogue's operands in format/functions.def. `fold-epilogues` creates it, and `lower-to-exec`
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
    `passing` lists the buffers of values that pass between programs: first those that the program receives, then those
    that it leaves, in the order of its function's arguments and results. The link step lists these values in the plan.
    `buffer_types` has the tensor type of each virtual buffer, by number. The planner reads sizes by named dimension
    from it. `plan-buffers` removes it and sets `workspace_bytes`. `propagate-value-axes` adds `exec.axes`.
    - (C1) passing lists buffers with a value and an element type of the plan.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<ArrayAttr>:$passing,
                       OptionalAttr<TypeArrayAttr>:$buffer_types, OptionalAttr<I64Attr>:$workspace_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasVerifier = 1;
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
    The function's row in format/functions.def defines the buffers, sizes, floats and scalars.
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

// Tables beside the programs, which passes and the link step read. The ops are the only form of these facts.

class Exec_Table<string mnemonic, list<Trait> traits = []> : Exec_Op<mnemonic, traits> {
  let hasVerifier = 1;
}

// Attributes that C++ reads as plain values.
def Exec_Count : TypedSignlessIntegerAttrBase<I64, "int64_t", "64-bit count">;
class Exec_Default<Attr attribute> : DefaultValuedAttr<attribute, "0">;
def Exec_Number : FloatAttrBase<F64, "64-bit number"> {
  let returnType = "double";
  let convertFromStorage = "$_self.getValueAsDouble()";
}
def Exec_Axes : TypedArrayAttrBase<StrAttr, "names of axes"> {
  let returnType = "::llvm::SmallVector<::mlir::StringAttr, 2>";
  let convertFromStorage = "::llvm::to_vector<2>($_self.getAsRange<::mlir::StringAttr>())";
  let constBuilderCall = "$_builder.getArrayAttr(::llvm::to_vector_of<::mlir::Attribute>($0))";
}
def Exec_NoAxes : DefaultValuedAttr<Exec_Axes, "::llvm::ArrayRef<::mlir::StringAttr>()">;

def Exec_SegmentOp :
    Exec_Table<"segment", [HasParent<"::mlir::ModuleOp">, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "The buckets of one kind of segment, and the bytes of a call in parameters, gradients and state";
  let description = [{
    `form-buckets` creates one per kind; it stays to the end. With `masters`, the state of each bucket begins with an
    f32 master copy, before the state tensors of its optimizer. Under ZeRO 2 and 3, gathered buffers have separate byte counts. If a
    segment uses tied parameters of another segment on its stage, the bytes include both. Tied buckets come first, so
    that every holder has the same order.
    - (C1) bytes are at least 0.
  }];
  let arguments = (ins StrAttr:$kind, UnitAttr:$masters, Exec_Count:$parameter_bytes, Exec_Count:$gradient_bytes,
                       Exec_Count:$state_bytes, Exec_Default<Exec_Count>:$whole_gradient_bytes,
                       Exec_Default<Exec_Count>:$whole_stored_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$kind attr-dict-with-keyword $body";
  let extraClassDeclaration = [{
    ::std::vector<BucketOp> buckets();
    /// Returns the parameters of all buckets, bucket by bucket.
    ::std::vector<ParameterOp> parameters();
    /// Return the bucket or the parameter with this name, or null.
    BucketOp bucket(::llvm::StringRef name);
    ParameterOp parameter(::llvm::StringRef name);
  }];
}

def Exec_BucketOp : Exec_Table<"bucket", [HasParent<"SegmentOp">, IsolatedFromAbove, NoTerminator, SingleBlock]> {
  let summary = "Parameters of a segment that are reduced, updated and gathered together";
  let description = [{
    `form-buckets` creates it, and it stays to the end: Bucket of plan.proto. `number` is the bucket's index in the
    plan; a tied bucket has the number of its owner. `elements` counts a rank's elements, and `part_elements` those of
    its shard over the axes `share`. `stored` is the type of the parameters, and `summed` that of the gradients and
    their sums, if it is not f32. Offsets are in bytes, in the regions of a call.

    `holders` lists the stages of a bucket that is tied across stages. `tied` means that another segment owns the
    bucket. `tied_here` means that the owner is on the same stage; it has the storage and runs the update.

    With `whole_gradient_offset` (ZeRO 2), the accumulator is the rank's shard, and calls add a micro-batch's gradient
    in the region whole_gradients. With `whole_stored_offset` (ZeRO 3), the parameters are also the shard, and calls
    read the gathered parameters in the region whole_parameters.

    With `frozen`, the parameters have neither gradients nor state. `share` is then empty, unless ZeRO 3 shards them.
    `norm_weight` is the weight of the squared gradient in the gradient norm.

    `optimizer` names the optimizer that updates the bucket. `matrix` has the rows and columns of
    a rank's slices of matrices, if the optimizer needs whole matrices. The bucket then holds slices of this shape
    without gaps, and so does each shard. `row_axes` and `column_axes` split the rows and the columns of whole matrices
    into slices.
    `sign_rate` is the step of the optimizer Sign.
    `rate_group` numbers the group of parameters whose learning rate the update uses, from 1 on.

    `clip` is set for a bucket with one weight, whose shards are whole rows.

    - (C1) elements are a multiple of part_elements, which is above 0.
    - (C2) axes are those of a mesh.
    - (C3) a frozen bucket has no axes in `partial` and no whole gradients.
    - (C4) part_elements are a multiple of the elements of a slice.
    - (C5) optimizer is one of format/optimizers.h.
    - (C6) sign_rate is above 0, and is given for the optimizer Sign alone.
    - (C7) row_axes and column_axes are axes of a mesh, and only buckets of matrices have them.
    - (C8) part_elements are whole rows of a clipped weight.
  }];
  let arguments = (ins StrAttr:$name, Exec_Count:$number, TypeAttr:$stored, OptionalAttr<TypeAttr>:$summed,
                       Exec_Count:$elements, Exec_Count:$part_elements, Exec_Axes:$partial, Exec_Axes:$share,
                       DenseI64ArrayAttr:$holders, UnitAttr:$decays, UnitAttr:$frozen, Exec_Number:$norm_weight,
                       Exec_Count:$stored_offset, Exec_Count:$gradient_offset, Exec_Count:$state_offset,
                       OptionalAttr<Exec_Count>:$whole_gradient_offset, OptionalAttr<Exec_Count>:$whole_stored_offset,
                       UnitAttr:$tied, UnitAttr:$tied_here, DefaultValuedStrAttr<StrAttr, "AdamW">:$optimizer,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$matrix, Exec_Default<Exec_Number>:$sign_rate,
                       Exec_Default<Exec_Count>:$rate_group, Exec_NoAxes:$row_axes, Exec_NoAxes:$column_axes,
                       OptionalAttr<Exec_BucketClipAttr>:$clip);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name attr-dict-with-keyword $body";
  let extraClassDeclaration = [{
    ::std::vector<ParameterOp> parameters();
    const ::espalier::rt::OptimizerRow &optimizerRow();
    /// Returns the names of the tensors of the optimizer state in their order in the region: "master" if there is a
    /// master copy, then for example "moment1".
    ::llvm::SmallVector<::llvm::StringRef> stateParts();
    ::mlir::Type gradientType();
    /// Return the bytes of one element of the stored parameters and of the gradients.
    int64_t storedWidth() { return getStored().getIntOrFloatBitWidth() / 8; }
    int64_t gradientWidth() { return gradientType().getIntOrFloatBitWidth() / 8; }
    /// Return the elements of the parameters and of the gradient accumulator that a rank stores.
    int64_t storedElements() { return getWholeStoredOffset() ? getPartElements() : getElements(); }
    int64_t gradientElements() { return getWholeGradientOffset() ? getPartElements() : getElements(); }
    /// Returns the axes that split the rows (0) or the columns (1) of whole matrices into slices.
    ::llvm::SmallVector<::mlir::StringAttr, 2> sideAxes(int side) { return side == 0 ? getRowAxes() : getColumnAxes(); }
    /// Returns the rows (0) or the columns (1) of a whole matrix.
    int64_t wholeSize(int side);
    /// Returns whether the segment updates the bucket.
    bool isUpdatedHere() { return !getTiedHere() && !getFrozen(); }
  }];
}

def Exec_ParameterOp : Exec_Table<"parameter", [HasParent<"BucketOp">]> {
  let summary = "One parameter of a bucket, at element `first`: local tensor, unsharded shape, initial values";
  let description = [{
    `form-buckets` creates it, and it stays to the end: Parameter of plan.proto. `padded_shape` is the shape of the
    unsharded tensor with the padding of the vocabulary, `shape` without. `tied_to` names the parameter of another
    segment whose storage this one uses: "segment.parameter".
    - (C1) the sharding, the shape and the padded shape have one entry per dimension of the local tensor.
    - (C2) initializer is one of plan.proto.
  }];
  let arguments = (ins StrAttr:$name, TypeAttrBase<"::mlir::RankedTensorType", "a tensor type">:$local,
                       DenseI64ArrayAttr:$shape, DenseI64ArrayAttr:$padded_shape, Dist_ShardingAttr:$sharding,
                       Exec_Count:$first, StrAttr:$initializer, Exec_Number:$stddev, OptionalAttr<StrAttr>:$tied_to);
  let assemblyFormat = "$name attr-dict";
  let extraClassDeclaration = [{
    BucketOp bucket();
    /// Returns the axes that shard the parameter, as a bit set.
    uint32_t axes();
    int64_t localElements() { return getLocal().getNumElements(); }
    /// Return the offset, in bytes, of the parameter and of its gradient in the region where layer calls read them.
    int64_t storedOffset();
    int64_t gradientOffset();
  }];
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

#endif
