// The dist dialect: where tensors live, and the collectives that move them.
#ifndef ESPALIER_DIST_DIALECT
#define ESPALIER_DIST_DIALECT

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::espalier::dist";
  let summary = "Where tensors live: the device mesh, shardings, reshard and collectives";
  let description = [{
    A module holds its mesh as the attribute `dist.mesh`. Between `apply-plan` and `localize` values have a sharding:
    arguments as the attribute `dist.sharding`, results of ops as entries of the op's `dist.shardings`.
  }];
  let useDefaultAttributePrinterParser = 1;
}

def Dist_MeshAttr : AttrDef<Dist_Dialect, "Mesh"> {
  let mnemonic = "mesh";
  let summary = "Named axes with their sizes, outermost first: the last varies fastest with the rank";
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$axes, ArrayRefParameter<"int64_t">:$sizes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Size of axis `name`; 1 for an axis that the mesh does not have.
    int64_t size(::llvm::StringRef name) const;
    int64_t size(::llvm::ArrayRef<::mlir::StringAttr> names) const;
  }];
}

def Dist_ShardingAttr : AttrDef<Dist_Dialect, "Sharding"> {
  let mnemonic = "sharding";
  let summary = "For each dimension the mesh axes that split it, and the axes over which the value is a partial sum";
  let description = [{
    `#dist.sharding<[{ }, {dp}, {tp} ], partial = {ep}>`: the first dimension is whole, the second split over dp, the
    third over tp, and the value is the sum over ep. An axis stands at most once.
  }];
  let parameters = (ins ArrayRefParameter<"::mlir::ArrayAttr">:$dims, ArrayRefParameter<"::mlir::StringAttr">:$partial);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Dist_OriginAttr : AttrDef<Dist_Dialect, "Origin"> {
  let mnemonic = "origin";
  let summary = "Where a device's part of a dimension begins: sum of coordinate(axis) * stride";
  let description = [{ `#dist.origin<dp * 4, tp * 2>`. `micro_batch` stands as one more axis for the batch. }];
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$axes, ArrayRefParameter<"int64_t">:$strides);
  let hasCustomAssemblyFormat = 1;
}

#endif
