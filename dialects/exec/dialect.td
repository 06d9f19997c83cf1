// The exec dialect: when each rank does what, over (region, offset) buffers. It mirrors runtime/plan.proto.
#ifndef ESPALIER_EXEC_DIALECT
#define ESPALIER_EXEC_DIALECT

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Exec_Dialect : Dialect {
  let name = "exec";
  let cppNamespace = "::espalier::exec";
  let summary = "Subprograms over (region, offset) buffers: kernel launches, library calls, communication";
  let description = [{
    `fuse-kernels` makes `exec.fused` inside functions; `lower-to-exec` turns each function into an `exec.program`
    and each distinct fused body into an `exec.kernel`; `plan-buffers` gives virtual buffers their offsets.
  }];
  let useDefaultAttributePrinterParser = 1;
}

// Enumerations that the run plan has too. Attributes spell them as here; the numbers are those of plan.proto, which the
// emitter asserts.
class Exec_Enum<string name, string summary, list<I32EnumAttrCase> cases> : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::espalier::exec";
  let genSpecializedAttr = 0;
}

def Exec_Region : Exec_Enum<"Region", "What a buffer's address is relative to; a call binds it to a place", [
  I32EnumAttrCase<"Parameters", 0, "parameters">, I32EnumAttrCase<"Gradients", 1, "gradients">,
  I32EnumAttrCase<"State", 2, "state">, I32EnumAttrCase<"Saved", 3, "saved">,
  I32EnumAttrCase<"StreamIn", 4, "stream_in">, I32EnumAttrCase<"StreamOut", 5, "stream_out">,
  I32EnumAttrCase<"CotangentOut", 6, "cotangent_out">, I32EnumAttrCase<"CotangentIn", 7, "cotangent_in">,
  I32EnumAttrCase<"Inputs", 8, "inputs">, I32EnumAttrCase<"Workspace", 9, "workspace">,
  I32EnumAttrCase<"Scalars", 10, "scalars">, I32EnumAttrCase<"Staged", 11, "staged">,
  I32EnumAttrCase<"Settings", 12, "settings">, I32EnumAttrCase<"Results", 13, "results">,
  I32EnumAttrCase<"Cache", 14, "cache">, I32EnumAttrCase<"Logits", 15, "logits">,
  I32EnumAttrCase<"SavedForWeights", 16, "saved_for_weights">,
  I32EnumAttrCase<"SavedByBackward", 17, "saved_by_backward">,
  I32EnumAttrCase<"WholeParameters", 18, "whole_parameters">,
  I32EnumAttrCase<"WholeGradients", 19, "whole_gradients">]>;

def Exec_Role : Exec_Enum<"Role", "Kinds of subprograms, one of each per call at most", [
  I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"Backward", 1, "backward">,
  I32EnumAttrCase<"Evaluate", 2, "evaluate">, I32EnumAttrCase<"Norm", 3, "norm">,
  I32EnumAttrCase<"Update", 4, "update">, I32EnumAttrCase<"Scalars", 5, "scalars">,
  I32EnumAttrCase<"Prefill", 6, "prefill">, I32EnumAttrCase<"Decode", 7, "decode">,
  I32EnumAttrCase<"Weight", 8, "weight">, I32EnumAttrCase<"Add", 9, "add">]>;

def Exec_TransferKind : Exec_Enum<"TransferKind", "Kinds of transfers; an instruction may start the first four", [
  I32EnumAttrCase<"AllReduce", 0, "all_reduce">, I32EnumAttrCase<"AllGather", 1, "all_gather">,
  I32EnumAttrCase<"ReduceScatter", 2, "reduce_scatter">, I32EnumAttrCase<"AllToAll", 3, "all_to_all">,
  I32EnumAttrCase<"Shift", 4, "shift">, I32EnumAttrCase<"Send", 5, "send">, I32EnumAttrCase<"Receive", 6, "receive">,
  I32EnumAttrCase<"Copy", 7, "copy">]>;

def Exec_Initializer : Exec_Enum<"Initializer", "Initial values of a parameter", [
  I32EnumAttrCase<"Zeros", 0, "zeros">, I32EnumAttrCase<"Ones", 1, "ones">, I32EnumAttrCase<"Normal", 2, "normal">]>;

def Exec_Memory : Exec_Enum<"Memory", "What a place is of", [
  I32EnumAttrCase<"Device", 0, "device">, I32EnumAttrCase<"Host", 1, "host">]>;

def Exec_DataType : Exec_Enum<"DataType", "Element types that a plan knows, as MLIR prints them", [
  I32EnumAttrCase<"F32", 0, "f32">, I32EnumAttrCase<"BF16", 1, "bf16">, I32EnumAttrCase<"F16", 2, "f16">,
  I32EnumAttrCase<"I32", 3, "i32">]>;

def Exec_Reduction : Exec_Enum<"Reduction", "How terms become one", [
  I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">]>;

def Exec_Store : Exec_Enum<"Store", "What a library call does with what its last buffer holds", [
  I32EnumAttrCase<"Overwrite", 0, "overwrite">, I32EnumAttrCase<"Add", 1, "add">,
  I32EnumAttrCase<"AddUnlessFirst", 2, "add_unless_first">]>;

def Exec_BufferAttr : AttrDef<Exec_Dialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "Bytes [offset, offset + bytes) of a region that hold a value";
  let description = [{
    `#exec.buffer<region = "saved", offset = 64, bytes = 128, value = "block.x">`. The regions are those of the plan, and
    `virtual`, whose offset is a number that plan-buffers replaces by a place in `workspace`; `within` is then the
    first byte inside of it. `value` names what the bytes hold, of layer `layer` + the call's; within a program a name
    that begins with `%` is the program's own. With `part`, a set of axes as the plan's bits, it is the rank's own one of
    as many parts. `coordinates` add bytes per mesh coordinate, where it is read. `bucket` above 0: bytes of the gradient
    of bucket `bucket` - 1.
  }];
  let parameters = (ins StringRefParameter<>:$region, "int64_t":$offset, "int64_t":$bytes,
                        DefaultValuedParameter<"int64_t", "0">:$within,
                        OptionalParameter<"::mlir::Attribute">:$coordinates,
                        OptionalParameter<"::mlir::StringAttr">:$value,
                        OptionalParameter<"::mlir::Type">:$element,
                        DefaultValuedParameter<"int64_t", "0">:$layer, DefaultValuedParameter<"int64_t", "0">:$part,
                        DefaultValuedParameter<"int64_t", "0">:$bucket);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isVirtual() const { return getRegion() == "virtual"; }
    /// The same place with another value's name.
    BufferAttr holding(::mlir::StringAttr value) const;
    /// Bytes [start, start + bytes) of it, moved by `coordinates`.
    BufferAttr slice(int64_t start, int64_t bytes, ::mlir::Attribute coordinates) const;
    /// Where a virtual buffer lies once it has a place at `offset` of the workspace.
    BufferAttr placedAt(int64_t offset) const;
  }];
}

def Exec_ScalarAttr : AttrDef<Exec_Dialect, "Scalar"> {
  let mnemonic = "scalar";
  let summary = "constant + sum of coefficient * variable, evaluated when the subprogram runs";
  let description = [{
    `first` above 0 stands alone: 1 where the RUN's gradients of bucket `first` - 1 are written and not added to, else 0.
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "0">:$constant,
                        DefaultValuedParameter<"int64_t", "0">:$micro_batch,
                        DefaultValuedParameter<"int64_t", "0">:$layer, DefaultValuedParameter<"int64_t", "0">:$seed,
                        OptionalParameter<"::mlir::Attribute">:$coordinates,
                        DefaultValuedParameter<"int64_t", "0">:$first);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_GeometryAttr : AttrDef<Exec_Dialect, "Geometry"> {
  let mnemonic = "geometry";
  let summary = "How launches of a kernel become a grid of blocks: the fields of plan.proto's Kernel";
  let description = [{
    A block of `threads` does `extent_per_block` iterations of the launch's extent and, where `columns_per_block` is
    above 0, so many columns (the launch's first scalar); it has `shared_bytes` of dynamic shared memory.
  }];
  let parameters = (ins "int64_t":$threads, "int64_t":$extent_per_block,
                        DefaultValuedParameter<"int64_t", "0">:$columns_per_block,
                        DefaultValuedParameter<"int64_t", "0">:$shared_bytes);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_BindingAttr : AttrDef<Exec_Dialect, "Binding"> {
  let mnemonic = "binding";
  let summary = "Where a region of a call lies: `offset` bytes into a place of its stage";
  let parameters = (ins StringRefParameter<>:$region, "int64_t":$place, DefaultValuedParameter<"int64_t", "0">:$offset);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_BucketUseAttr : AttrDef<Exec_Dialect, "BucketUse"> {
  let mnemonic = "use";
  let summary = "A bucket of a call, the layer of the call that owns it, and whether this call updates it (then 1)";
  let parameters = (ins "int64_t":$bucket, "int64_t":$owner, DefaultValuedParameter<"int64_t", "0">:$updates);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_FlightAttr : AttrDef<Exec_Dialect, "Flight"> {
  let mnemonic = "flight";
  let summary = "A transfer of a call and a micro-batch; where it starts, with a slot for each lifetime of the chunk";
  let parameters = (ins StringRefParameter<>:$transfer, "int64_t":$call,
                        DefaultValuedParameter<"int64_t", "0">:$micro_batch,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$slots);
  let assemblyFormat = "`<` struct(params) `>`";
}

#endif
