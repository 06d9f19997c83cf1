// The exec dialect: the programs of ranks, over (region, offset) buffers. It mirrors the programs and buckets of
// format/plan.proto. The link step (compiler/link) builds the other tables of a plan.
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
    `fuse-kernels` creates `exec.fused` inside functions. `lower-to-exec` converts each function to an `exec.program`
    and each distinct fused body to an `exec.kernel`. `plan-buffers` assigns offsets to virtual buffers.
  }];
  let useDefaultAttributePrinterParser = 1;
}

// Enumerations shared with the run plan. Attributes use these spellings. The numbers equal those of plan.proto; the
// emitter asserts this.
class Exec_Enum<string name, string summary, list<I32EnumAttrCase> cases> : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::espalier::exec";
  let genSpecializedAttr = 0;
}

def Exec_Region : Exec_Enum<"Region", "The base of a buffer's address; a call binds it to an allocation", [
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

def Exec_Role : Exec_Enum<"Role", "Kinds of subprograms; a call has at most one of each", [
  I32EnumAttrCase<"Forward", 0, "forward">, I32EnumAttrCase<"Backward", 1, "backward">,
  I32EnumAttrCase<"Evaluate", 2, "evaluate">, I32EnumAttrCase<"Norm", 3, "norm">,
  I32EnumAttrCase<"Update", 4, "update">, I32EnumAttrCase<"Scalars", 5, "scalars">,
  I32EnumAttrCase<"Prefill", 6, "prefill">, I32EnumAttrCase<"Decode", 7, "decode">,
  I32EnumAttrCase<"Weight", 8, "weight">, I32EnumAttrCase<"Add", 9, "add">]>;

def Exec_CollectiveKind : Exec_Enum<"CollectiveKind", "Kinds of transfers that an instruction may start", [
  I32EnumAttrCase<"AllReduce", 0, "all_reduce">, I32EnumAttrCase<"AllGather", 1, "all_gather">,
  I32EnumAttrCase<"ReduceScatter", 2, "reduce_scatter">, I32EnumAttrCase<"AllToAll", 3, "all_to_all">]>;

def Exec_Initializer : Exec_Enum<"Initializer", "Initial values of a parameter", [
  I32EnumAttrCase<"Zeros", 0, "zeros">, I32EnumAttrCase<"Ones", 1, "ones">, I32EnumAttrCase<"Normal", 2, "normal">]>;

def Exec_DataType : Exec_Enum<"DataType", "Element types of a plan, as MLIR prints them", [
  I32EnumAttrCase<"F32", 0, "f32">, I32EnumAttrCase<"BF16", 1, "bf16">, I32EnumAttrCase<"F16", 2, "f16">,
  I32EnumAttrCase<"I32", 3, "i32">]>;

def Exec_Reduction : Exec_Enum<"Reduction", "The operation that combines the terms of partial values", [
  I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">]>;

def Exec_Store : Exec_Enum<"Store", "How a library call combines its result with the contents of the destination", [
  I32EnumAttrCase<"Overwrite", 0, "overwrite">, I32EnumAttrCase<"Add", 1, "add">,
  I32EnumAttrCase<"AddUnlessFirst", 2, "add_unless_first">]>;

def Exec_Mode : Exec_Enum<"Mode", "What a run does: the step of its plan", [
  I32EnumAttrCase<"Train", 0, "train">, I32EnumAttrCase<"Evaluate", 1, "evaluate">,
  I32EnumAttrCase<"Generate", 2, "generate">]>;

def Exec_ModeAttr : EnumAttr<Exec_Dialect, Exec_Mode, "mode"> { let assemblyFormat = "`<` $value `>`"; }

def Exec_F64 : AttrOrTypeParameter<"::espalier::exec::F64", "a 64-bit float, 0 if it is left out"> {
  let parser = "::espalier::exec::parseF64($_parser)";
  let printer = "$_printer << $_self.value";
  let defaultValue = "0";
}

def Exec_String : StringRefParameter<"a text, empty if it is left out", "\"\"">;
def Exec_List : DefaultValuedParameter<"::mlir::ArrayAttr", "::mlir::ArrayAttr::get($_ctxt, {})">;

def Exec_OptimizerType : AttrOrTypeParameter<"::espalier::exec::OptimizerType", "the name of an optimizer"> {
  let parser = "::espalier::exec::parseOptimizer($_parser)";
  let printer = "::espalier::exec::printOptimizer($_printer, $_self)";
}

def Exec_InitializerKind : EnumParameter<Exec_Initializer> {
  let defaultValue = "::espalier::exec::Initializer::Zeros";
}

class Exec_Flag<string initial = "false"> : DefaultValuedParameter<"bool", initial>;

def Exec_PlanAttr : AttrDef<Exec_Dialect, "Plan"> {
  let mnemonic = "plan";
  let summary = "A plan of the planner beside its axes, which `dist.mesh` has";
  let description = [{ The fields, their names and their initial values are those of planner::Plan. }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "1">:$micro_batch_size,
                        DefaultValuedParameter<"int64_t", "1">:$micro_batches,
                        DefaultValuedParameter<"int", "1">:$virtual_stages,
                        DefaultValuedParameter<"int", "0">:$zero, Exec_Flag<>:$sequence_parallel, Exec_Flag<>:$zigzag,
                        Exec_Flag<"true">:$vocab_parallel, Exec_Flag<"true">:$splits_experts,
                        Exec_Flag<>:$keep_tensor_parallel_results, Exec_Flag<>:$slice_recomputed_inputs,
                        Exec_Flag<>:$offload_optimizer, Exec_Flag<>:$offload_activations,
                        Exec_Flag<>:$offload_parameters, StringRefParameter<"", "\"1f1b\"">:$schedule,
                        Exec_List:$stages);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_StageAttr : AttrDef<Exec_Dialect, "Stage"> {
  let mnemonic = "stage";
  let summary = "The layers of a stage or chunk of a plan";
  let description = [{ `recompute` has the name of each layer's policy; an empty list means none for all layers. }];
  let parameters = (ins "int":$first_layer, "int":$layers, Exec_List:$recompute);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Exec_OptimizerAttr : AttrDef<Exec_Dialect, "Optimizer"> {
  let mnemonic = "optimizer";
  let summary = "What the programs of a step need to know of the run's optimizer";
  let description = [{
    `type` is the name of a row of format/optimizers.h. `max_grad_norm`, `skip_spike_factor` and `qk_clip_threshold` are
    0 if the run does not clip or skip. `group_decays` has the weight decay of each group of parameters with its own
    learning rate. With `masters`, parameters that are not stored in f32 have f32 master copies.
  }];
  let parameters = (ins Exec_OptimizerType:$type, Exec_F64:$beta1, Exec_F64:$beta2, Exec_F64:$epsilon,
                        Exec_F64:$weight_decay, Exec_F64:$max_grad_norm, Exec_F64:$momentum, Exec_Flag<>:$nesterov,
                        DefaultValuedParameter<"int64_t", "0">:$newton_schulz_steps, Exec_String:$scale_mode,
                        Exec_F64:$scale_factor, Exec_F64:$skip_spike_factor, Exec_F64:$qk_clip_threshold,
                        DefaultValuedParameter<"::mlir::DenseF64ArrayAttr",
                                               "::mlir::DenseF64ArrayAttr::get($_ctxt, {})">:$group_decays,
                        Exec_Flag<>:$masters);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_ClipAttr : AttrDef<Exec_Dialect, "Clip"> {
  let mnemonic = "clip";
  let summary = "How QK-clip scales a weight";
  let description = [{
    `counter` has the largest scores of the heads, `heads` is the weight's dimension of key-value heads, and `exponent`
    is that of a head's factor.
  }];
  let parameters = (ins Exec_String:$counter, Exec_String:$heads, Exec_F64:$exponent);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_ParameterAttr : AttrDef<Exec_Dialect, "Parameter"> {
  let mnemonic = "parameter";
  let summary = "Properties of a parameter that its argument lacks";
  let description = [{
    `tied_to` is the "segment.parameter" whose storage the parameter uses. `rate_group` is the number of its group with
    its own learning rate, from 1. With a `sign_rate`, the optimizer Sign updates it.
  }];
  let parameters = (ins Exec_InitializerKind:$initializer, Exec_F64:$stddev, Exec_Flag<>:$decays,
                        OptionalParameter<"::espalier::exec::ClipAttr">:$clip, Exec_F64:$sign_rate,
                        Exec_String:$tied_to, DefaultValuedParameter<"int64_t", "0">:$rate_group);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_MatmulAlgorithmsAttr : AttrDef<Exec_Dialect, "MatmulAlgorithms"> {
  let mnemonic = "matmul_algorithms";
  let summary = "The fastest algorithms of a library: by product, the algorithm's bytes in hexadecimal";
  let parameters = (ins Exec_String:$library, "::mlir::DictionaryAttr":$products);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_BufferAttr : AttrDef<Exec_Dialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "Bytes [offset, offset + bytes) of a region that hold a value";
  let description = [{
    Example: `#exec.buffer<region = "saved", offset = 64, bytes = 128, value = "block.x">`. The regions are those of the
    plan, and `virtual`. The offset of a virtual buffer is a buffer number, which plan-buffers replaces by an offset in
    `workspace`; `within` is then the first byte inside the buffer. `value` names the contents, of layer `layer` + the
    call's layer. A name that begins with `%` is local to the program. If `part` is a set of axes (a bit mask as in the
    plan), the buffer is the rank's own shard. `coordinates` adds bytes per mesh coordinate, in reads. If `bucket` is
    above 0, the buffer is the gradient of bucket `bucket` - 1.
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
    /// Returns this buffer with another value name.
    BufferAttr holding(::mlir::StringAttr value) const;
    /// Returns bytes [start, start + bytes) of this buffer, displaced by `coordinates`.
    BufferAttr slice(int64_t start, int64_t bytes, ::mlir::Attribute coordinates) const;
    /// Returns this virtual buffer as a buffer at `offset` of the workspace.
    BufferAttr placedAt(int64_t offset) const;
  }];
}

def Exec_BucketClipAttr : AttrDef<Exec_Dialect, "BucketClip"> {
  let mnemonic = "bucket_clip";
  let summary = "What QK-clip does after the update of a bucket's weight, whose columns are those of heads";
  let description = [{
    `counter` has the maxima of the key-value heads, and `dim` is the dimension of these heads. `exponent` is that of
    the factor of a head. Each row of the weight has `columns` elements of each of `heads` heads. The ranks of `axes`
    keep maxima of other samples or positions.
  }];
  let parameters = (ins Exec_String:$counter, Exec_String:$dim, Exec_F64:$exponent,
                        "int64_t":$heads, "int64_t":$columns, OptionalArrayRefParameter<"::mlir::StringAttr">:$axes);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Exec_ScalarAttr : AttrDef<Exec_Dialect, "Scalar"> {
  let mnemonic = "scalar";
  let summary = "constant + sum of coefficient * variable, evaluated when the subprogram runs";
  let description = [{
    If `first` is above 0, the scalar is 1 if the RUN overwrites the gradients of bucket `first` - 1, and 0 if it adds
    to them. There are no other terms then.
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
  let summary = "The grid of a kernel's launches: Geometry of plan.proto";
  let description = [{
    A block has `threads` threads and `shared_bytes` of dynamic shared memory. It computes `extent_per_block` iterations
    of the launch's extent. If `columns_per_block` is above 0, it computes only that many of the columns, whose number
    is the launch's first scalar.
  }];
  let parameters = (ins "int64_t":$threads, "int64_t":$extent_per_block,
                        DefaultValuedParameter<"int64_t", "0">:$columns_per_block,
                        DefaultValuedParameter<"int64_t", "0">:$shared_bytes);
  let assemblyFormat = "`<` struct(params) `>`";
}

#endif
