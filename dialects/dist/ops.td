// Ops of the dist dialect: reshard on global types, collectives on local types.
#ifndef ESPALIER_DIST_OPS
#define ESPALIER_DIST_OPS

include "dialects/interfaces.td"
include "dialects/dist/dialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Dist_Op<string mnemonic, list<Trait> traits = []> : Op<Dist_Dialect, mnemonic, !listconcat(traits, [Pure])>;

def Dist_ReshardOp : Dist_Op<"reshard"> {
  let summary = "Moves a tensor to another sharding";
  let description = [{
      Changes the placement, not the value. `insert-reshards` creates it, and `localize` lowers it to the cheapest
      collectives.
      - (C1) `from` and `to` have one entry per dimension. - (C2) operand and result have the same type.
      - (C3) `to` is partial only over axes over which `from` is partial.
  }];
  let arguments = (ins AnyRankedTensor:$x, Dist_ShardingAttr:$from, Dist_ShardingAttr:$to);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$x `from` $from `to` $to attr-dict `:` functional-type($x, $result)";
  let hasVerifier = 1;
}

class Dist_Collective<string mnemonic, list<Trait> traits = []> : Dist_Op<mnemonic, traits> {
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

def Dist_AllReduceOp : Dist_Collective<"all_reduce", [KeptForBackward]> {
  let summary = "Sums or maximizes over the devices of a group; all of them get the result";
  let description = [{ - (C1) `axes` are not empty. - (C2) operand and result have the same type. - (C3) `reduction`
    is sum or max. }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, StrAttr:$reduction);
  let assemblyFormat = "$x `over` $axes $reduction attr-dict `:` functional-type($x, $result)";
}

def Dist_AllGatherOp : Dist_Collective<"all_gather", [RepeatedInBackward]> {
  let summary = "Concatenates the shards of a group along a dimension";
  let description = [{ - (C1) `axes` is not empty. - (C2) operand and result differ only in dimension `dim`, where the
      result is a multiple of the operand. }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, I64Attr:$dim);
  let assemblyFormat = "$x `over` $axes `dim` $dim attr-dict `:` functional-type($x, $result)";
}

def Dist_ReduceScatterOp : Dist_Collective<"reduce_scatter", [KeptForBackward]> {
  let summary = "Sums over the devices of a group; each device gets its shard along a dimension";
  let description = [{ - (C1) `axes` is not empty. - (C2) operand and result differ only in dimension `dim`, where the
      operand is a multiple of the result. }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, I64Attr:$dim);
  let assemblyFormat = "$x `over` $axes `dim` $dim attr-dict `:` functional-type($x, $result)";
}

def Dist_AllToAllOp : Dist_Op<"all_to_all", [KeptForBackward]> {
  let summary = "Splits one dimension over a group and gathers another: each device sends a shard to each other one";
  let description = [{ - (C1) `axes` is not empty. - (C2) `split` and `concat` are different dimensions. Dimension
      `split` shrinks and `concat` grows by the same factor; other sizes are equal. }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, I64Attr:$split, I64Attr:$concat);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$x `over` $axes `split` $split `concat` $concat attr-dict `:` functional-type($x, $result)";
}

def Dist_SliceOp : Dist_Collective<"slice", [RepeatedInBackward]> {
  let summary = "Takes the device's shard of a replicated tensor along a dimension, without communication";
  let description = [{ - (C1) `axes` is not empty. - (C2) operand and result differ only in dimension `dim`, where the
      operand is a multiple of the result. }];
  let arguments = (ins AnyRankedTensor:$x, StrArrayAttr:$axes, I64Attr:$dim);
  let assemblyFormat = "$x `over` $axes `dim` $dim attr-dict `:` functional-type($x, $result)";
}

#endif
