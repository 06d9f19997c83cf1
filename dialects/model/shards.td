// Ops on shards of sequences, which localization creates from those of recurrence.td. A shard has one run of positions,
// or two in zigzag order. `first_position` is the #dist.origin of the shard. Positions are those of the whole sequence.
// recurrence_rules.cpp has their costs and verifiers.
#ifndef ESPALIER_MODEL_SHARDS
#define ESPALIER_MODEL_SHARDS

include "dialects/model/ops.td"

class Model_OnShard<string mnemonic> : Model_Op<mnemonic, [Model_Cost]> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Model_ShardStatesOp : Model_OnShard<"shard_states"> {
  let summary = "What each run of a shard adds to the state of a recurrence, and by what it multiplies the state";
  let description = [{
      S, the state before a run, becomes A S + B after it. Localization gathers A and B of all runs, so each rank computes
    the state before its own runs. The number of elements does not depend on the length of the sequence. With
    `backward`, v is the cotangent of the recurrence. The gradient G of the state after a run becomes A^T G + C before
    it, and the result is C.
    - (C1) q, k, v, decay, beta and visible_from are as in recurrence. - (C2) the result is f32 [batch, runs, heads,
    group.., key_dim, columns] with as many columns as v for B, then those of A: key_dim with `delta`, else one, because
    A is diagonal. With `backward` it is C, with the columns of v. - (C3) `whole` is the length of the sequence.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$decay,
                       AnyRankedTensor:$beta, Optional<AnyRankedTensor>:$visible_from, UnitAttr:$delta,
                       UnitAttr:$backward, AnyAttr:$first_position, I64Attr:$whole);
  let results = (outs AnyRankedTensor:$result);
}

def Model_ShardRecurrenceOp : Model_OnShard<"shard_recurrence"> {
  let summary = "Recurrence over a shard, which follows the runs before it";
  let description = [{
    - (C1) q, k, v, decay, beta, visible_from and out are as in recurrence. - (C2) `borders` is the gathered result of
    shard_states.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$decay,
                       AnyRankedTensor:$beta, AnyRankedTensor:$borders, Optional<AnyRankedTensor>:$visible_from,
                       UnitAttr:$delta, AnyAttr:$first_position);
  let results = (outs AnyRankedTensor:$out);
}

def Model_ShardRecurrenceGradOp : Model_OnShard<"shard_recurrence_grad"> {
  let summary = "Derivative of shard_recurrence; recomputes the states";
  let description = [{
    - (C1) operands and results are as in recurrence_grad. - (C2) `borders` and `ends` are the gathered results of
    shard_states, the latter with `backward`.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$decay,
                       AnyRankedTensor:$beta, AnyRankedTensor:$cotangent, AnyRankedTensor:$borders,
                       AnyRankedTensor:$ends, Optional<AnyRankedTensor>:$visible_from, UnitAttr:$delta,
                       AnyAttr:$first_position);
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv, AnyRankedTensor:$ddecay,
                      AnyRankedTensor:$dbeta);
}

def Model_ShardEdgesOp : Model_OnShard<"shard_edges"> {
  let summary = "The last positions of each run of a shard, or the first ones";
  let description = [{
      Convolutions read them on the ranks with the neighbouring runs.
    - (C1) x is [batch, seq, ..] and the result has its type, but fewer positions: equally many of each run.
  }];
  let arguments = (ins AnyRankedTensor:$x, UnitAttr:$first, AnyAttr:$first_position);
  let results = (outs AnyRankedTensor:$result);
}

def Model_ShardConvOp : Model_OnShard<"shard_conv"> {
  let summary = "Causal convolution, or a transposed one, over a shard";
  let description = [{
      `limits` are visible_from and, with `transposed`, its gathered first positions.
    - (C1) x, weight, visible_from and the result are as in causal_conv. - (C2) `edges` is the gathered result of
    shard_edges of x, of the first positions with `transposed`; so is the second limit of the first.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$edges,
                       Variadic<AnyRankedTensor>:$limits, UnitAttr:$transposed, AnyAttr:$first_position);
  let results = (outs AnyRankedTensor:$result);
  let extraClassDeclaration = [{
    /// Returns null if the convolution goes over documents.
    ::mlir::Value getVisibleFrom() { return getLimits().empty() ? ::mlir::Value() : getLimits()[0]; }
  }];
}

def Model_ShardConvGradOp : Model_OnShard<"shard_conv_grad"> {
  let summary = "Derivative of shard_conv with respect to its weight; a part of a sum";
  let description = [{
    - (C1) x, cotangent, visible_from and the result are as in causal_conv_grad. - (C2) edges are as in shard_conv.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$cotangent, AnyRankedTensor:$edges,
                       Optional<AnyRankedTensor>:$visible_from, AnyAttr:$first_position);
  let results = (outs AnyRankedTensor:$result);
}

#endif
