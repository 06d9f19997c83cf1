// The exec dialect: when each rank does what, over (region, offset) buffers. It mirrors runtime/plan.proto.
#ifndef ESPALIER_EXEC_DIALECT
#define ESPALIER_EXEC_DIALECT

include "mlir/IR/AttrTypeBase.td"
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

def Exec_BufferAttr : AttrDef<Exec_Dialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "Bytes [offset, offset + bytes) of a region; `coordinates` add bytes per mesh coordinate";
  let description = [{
    `#exec.buffer<region = "saved", offset = 64, bytes = 128>`. The regions are those of plan.proto in lower case, and
    `virtual`, whose offset is a number that plan-buffers replaces by a place in `workspace`; `within` is then the
    first byte inside of it.
  }];
  let parameters = (ins StringRefParameter<>:$region, "int64_t":$offset, "int64_t":$bytes,
                        DefaultValuedParameter<"int64_t", "0">:$within,
                        OptionalParameter<"::mlir::Attribute">:$coordinates);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isVirtual() const { return getRegion() == "virtual"; }
  }];
}

def Exec_ScalarAttr : AttrDef<Exec_Dialect, "Scalar"> {
  let mnemonic = "scalar";
  let summary = "constant + sum of coefficient * variable, evaluated when the subprogram runs";
  let description = [{
    With `first` above 0 it is, alone, 1 where the run names bucket `first` - 1 as one whose gradients are written and not
    added to, else 0. What changes from step to step is no scalar: it is read from memory.
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "0">:$constant,
                        DefaultValuedParameter<"int64_t", "0">:$micro_batch,
                        DefaultValuedParameter<"int64_t", "0">:$layer, DefaultValuedParameter<"int64_t", "0">:$seed,
                        DefaultValuedParameter<"int64_t", "0">:$first,
                        OptionalParameter<"::mlir::Attribute">:$coordinates);
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

#endif
