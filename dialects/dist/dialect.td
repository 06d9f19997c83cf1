// The dist dialect: placement of tensors, and the collectives that move them.
#ifndef ESPALIER_DIST_DIALECT
#define ESPALIER_DIST_DIALECT

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::espalier::dist";
  let summary = "Tensor placement: the device mesh, shardings, reshard and collectives";
  let description = [{
      The module attribute `dist.mesh` holds the mesh. Between `apply-plan` and `localize` all values have a sharding:
      arguments have the attribute `dist.sharding`, op results have entries in the op's attribute `dist.shardings`.
  }];
  let useDefaultAttributePrinterParser = 1;
}

def Dist_MeshAttr : AttrDef<Dist_Dialect, "Mesh"> {
  let mnemonic = "mesh";
  let summary = "Named axes with their sizes, outermost first; the last axis varies fastest with the rank";
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$axes, ArrayRefParameter<"int64_t">:$sizes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Returns the size of axis `name`; 1 for an axis that the mesh does not have.
    int64_t size(::llvm::StringRef name) const;
    int64_t size(::llvm::ArrayRef<::mlir::StringAttr> names) const;
  }];
}

def Dist_ShardingAttr : AttrDef<Dist_Dialect, "Sharding"> {
  let mnemonic = "sharding";
  let summary = "The mesh axes that shard each dimension, and the axes over which the value is a partial sum";
  let description = [{
      In `#dist.sharding<[{ }, {dp}, {tp} ], partial = {ep}>` the first dimension is not split, the second is split over
      dp, the third over tp, and the value is a partial sum over ep. Each axis occurs at most once.
  }];
  let parameters = (ins ArrayRefParameter<"::mlir::ArrayAttr">:$dims, ArrayRefParameter<"::mlir::StringAttr">:$partial);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Dist_OriginAttr : AttrDef<Dist_Dialect, "Origin"> {
  let mnemonic = "origin";
  let summary = "Start of a device's shard along a dimension: sum of coordinate(axis) * stride";
  let description = [{ `#dist.origin<dp * 4, tp * 2>`. For the batch, `micro_batch` is an additional axis. }];
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$axes, ArrayRefParameter<"int64_t">:$strides);
  let hasCustomAssemblyFormat = 1;
}

#endif
