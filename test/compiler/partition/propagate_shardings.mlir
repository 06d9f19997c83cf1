// RUN: espalier-opt %s -split-input-file -differentiate -propagate-shardings | FileCheck %s
// Sizes: batch 4, seq 6, hidden 10, ffn 14, heads 8, head_dim 12, vocab 22.

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// Tensor parallelism: tp shards the columns of the first product. The second product sums over them and is partial. dp
// shards the batch, so gradients of weights and their accumulators are partial over dp.
// CHECK-LABEL: func.func @pair(
// CHECK-SAME: {dist.sharding = #dist.sharding<[{dp}, {}, {}]>, model.name = "x", model.role = "stream"}
// CHECK-SAME: {dist.sharding = #dist.sharding<[{}, {tp}]>, model.name = "up", model.role = "parameter"}
// CHECK-SAME: {dist.sharding = #dist.sharding<[{tp}, {}]>, model.name = "down", model.role = "parameter"}
// CHECK-SAME: {dist.sharding = #dist.sharding<[{}, {tp}], partial = {dp}>, model.name = "up", model.role = "accumulator"}
// CHECK-SAME: {dist.sharding = #dist.sharding<[{tp}, {}], partial = {dp}>, model.name = "down", model.role = "accumulator"}
// CHECK: model.contract %arg0, %arg1
// CHECK-SAME: dist.operands = [#dist.sharding<[{dp}, {}, {}]>, #dist.sharding<[{}, {tp}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}, {tp}]>]
// CHECK: model.contract %0, %arg2
// CHECK-SAME: dist.operands = [#dist.sharding<[{dp}, {}, {tp}]>, #dist.sharding<[{tp}, {}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}, {}], partial = {tp}>]
// CHECK: model.cotangent
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}, {}]>]
// CHECK: return
// CHECK-SAME: dist.operands = [#dist.sharding<[{dp}, {}, {}]>, #dist.sharding<[{dp}, {}, {}]>, #dist.sharding<[{}, {tp}], partial = {dp}>, #dist.sharding<[{tp}, {}], partial = {dp}>]
module attributes {dist.mesh = #dist.mesh<pp = 1, dp = 2, tp = 2>, dist.dims = {batch = ["dp"], ffn = ["tp"]}} {
  func.func @pair(%x: !stream {model.role = "stream", model.name = "x"},
                  %up: !up {model.role = "parameter", model.name = "up"},
                  %down: !down {model.role = "parameter", model.name = "down"})
      -> (!stream {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %u = model.contract %x, %up : (!stream, !up) -> !wide
    %y = model.contract %u, %down : (!wide, !down) -> !stream
    return %y : !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>
!bias = tensor<10xf32, #model.dims<hidden>>

// Sequence parallelism: tp also shards the stream's sequence. In the product, the parameter uses tp for ffn, so x must
// be unsharded. The bias is added where the sequence is sharded, so its gradient is also partial over tp.
// CHECK-LABEL: func.func @sequence_parallel(
// CHECK-SAME: {dist.sharding = #dist.sharding<[{dp}, {tp}, {}]>, model.name = "x", model.role = "stream"}
// CHECK-SAME: {dist.sharding = #dist.sharding<[{}], partial = {dp, tp}>, model.name = "b", model.role = "accumulator"}
// CHECK: model.contract %arg0, %arg1
// CHECK-SAME: dist.operands = [#dist.sharding<[{dp}, {}, {}]>, #dist.sharding<[{}, {tp}]>]
// CHECK: model.contract %0, %arg2
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}, {}], partial = {tp}>]
// CHECK: model.add %1, %arg3
// CHECK-SAME: dist.operands = [#dist.sharding<[{dp}, {tp}, {}]>, #dist.sharding<[{}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {tp}, {}]>]
// CHECK: model.cotangent
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {tp}, {}]>]
// CHECK: model.reduce_sum
// CHECK-SAME: dist.shardings = [#dist.sharding<[{}], partial = {dp, tp}>]
module attributes {dist.mesh = #dist.mesh<pp = 1, dp = 2, tp = 2>, dist.dims = {batch = ["dp"], ffn = ["tp"]},
                   dist.sequence_parallel} {
  func.func @sequence_parallel(%x: !stream {model.role = "stream", model.name = "x"},
                               %up: !up {model.role = "parameter", model.name = "up"},
                               %down: !down {model.role = "parameter", model.name = "down"},
                               %b: !bias {model.role = "parameter", model.name = "b"})
      -> (!stream {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %u = model.contract %x, %up : (!stream, !up) -> !wide
    %d = model.contract %u, %down : (!wide, !down) -> !stream
    %y = model.add %d, %b : (!stream, !bias) -> !stream
    return %y : !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>
!rows = tensor<4x6xf32, #model.dims<batch, seq>>

// Sums that are partial over the same axes pass through linear ops. A nonlinear op, and a sum with a value that is not
// partial, read the reduced value.
// CHECK-LABEL: func.func @linear(
// CHECK: model.contract %arg0, %arg2
// CHECK: model.contract %arg0, %arg3
// CHECK: %[[SUM:.*]] = model.add %0, %1
// CHECK-SAME: dist.operands = [#dist.sharding<[{}, {}, {}], partial = {tp}>, #dist.sharding<[{}, {}, {}], partial = {tp}>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{}, {}, {}], partial = {tp}>]
// CHECK: model.reduce_sum %[[SUM]]
// CHECK-SAME: dist.operands = [#dist.sharding<[{}, {}, {}], partial = {tp}>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{}, {}], partial = {tp}>]
// CHECK: model.exp %[[SUM]]
// CHECK-SAME: dist.operands = [#dist.sharding<[{}, {}, {}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{}, {}, {}]>]
// CHECK: model.add %[[SUM]], %arg1
// CHECK-SAME: dist.operands = [#dist.sharding<[{}, {}, {}]>, #dist.sharding<[{}, {}, {}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{}, {}, {}]>]
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}} {
  func.func @linear(%x: !wide, %whole: !stream, %a: !down {model.role = "parameter"},
                    %b: !down {model.role = "parameter"}) -> (!rows, !stream, !stream) {
    %d = model.contract %x, %a : (!wide, !down) -> !stream
    %e = model.contract %x, %b : (!wide, !down) -> !stream
    %sum = model.add %d, %e : (!stream, !stream) -> !stream
    %rows = model.reduce_sum %sum : (!stream) -> !rows
    %powers = model.exp %sum : (!stream) -> !stream
    %more = model.add %sum, %whole : (!stream, !stream) -> !stream
    return %rows, %powers, %more : !rows, !stream, !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!table = tensor<22x10xf32, #model.dims<vocab, hidden>>
!tokens = tensor<4x6xi32, #model.dims<batch, seq>>

// Vocabulary-parallel embedding: each device looks up its rows, and the sum over tp is the result. The gradient of the
// table stays sharded like its accumulator.
// CHECK-LABEL: func.func @embedding(
// CHECK-SAME: {dist.sharding = #dist.sharding<[{tp}, {}]>, model.name = "table", model.role = "parameter"}
// CHECK-SAME: {dist.sharding = #dist.sharding<[{dp}, {}]>, model.name = "tokens", model.role = "input"}
// CHECK-SAME: {dist.sharding = #dist.sharding<[{tp}, {}], partial = {dp}>, model.name = "table", model.role = "accumulator"}
// CHECK: model.embed %
// CHECK-SAME: dist.operands = [#dist.sharding<[{tp}, {}]>, #dist.sharding<[{dp}, {}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}, {}], partial = {tp}>]
// CHECK: model.embed_grad
// CHECK-SAME: dist.operands = [#dist.sharding<[{dp}, {}]>, #dist.sharding<[{dp}, {}, {}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{tp}, {}], partial = {dp}>]
module attributes {dist.mesh = #dist.mesh<dp = 2, tp = 2>, dist.dims = {batch = ["dp"], vocab = ["tp"]}} {
  func.func @embedding(%table: !table {model.role = "parameter", model.name = "table"},
                       %tokens: !tokens {model.role = "input", model.name = "tokens"})
      -> (!stream {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.embed %table, %tokens : (!table, !tokens) -> !stream
    return %y : !stream
  }
}

// -----

!logits = tensor<4x6x22xf32, #model.dims<batch, seq, vocab>>
!rows = tensor<4x6xf32, #model.dims<batch, seq>>
!labels = tensor<4x6xi32, #model.dims<batch, seq>>

// Vocabulary-parallel cross entropy: only sums are partial. The localization of the maximum reduces it, so its result
// is replicated.
// CHECK-LABEL: func.func @cross_entropy(
// CHECK: model.reduce_max
// CHECK-SAME: dist.operands = [#dist.sharding<[{dp}, {}, {tp}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}]>]
// CHECK: model.sub
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}, {tp}]>]
// CHECK: model.reduce_sum
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}], partial = {tp}>]
// CHECK: model.pick
// CHECK-SAME: dist.operands = [#dist.sharding<[{dp}, {}, {tp}]>, #dist.sharding<[{dp}, {}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{dp}, {}], partial = {tp}>]
module attributes {dist.mesh = #dist.mesh<dp = 2, tp = 2>, dist.dims = {batch = ["dp"], vocab = ["tp"]}} {
  func.func @cross_entropy(%x: !logits, %labels: !labels) -> (!rows, !rows) {
    %max = model.reduce_max %x : (!logits) -> !rows
    %shifted = model.sub %x, %max : (!logits, !rows) -> !logits
    %total = model.reduce_sum %shifted : (!logits) -> !rows
    %picked = model.pick %x, %labels : (!logits, !labels) -> !rows
    return %total, %picked : !rows, !rows
  }
}

// -----

!q = tensor<4x6x8x12xf32, #model.dims<batch, seq, heads, head_dim>>
!sums = tensor<4x6x8xf32, #model.dims<batch, seq, heads>>

// Attention keeps a sharded sequence; its localization gathers keys and values.
// CHECK-LABEL: func.func @split_sequences(
// CHECK-SAME: dist.sharding = #dist.sharding<[{}, {cp}, {tp}, {}]>
// CHECK: model.attention
// CHECK-SAME: dist.operands = [#dist.sharding<[{}, {cp}, {tp}, {}]>, #dist.sharding<[{}, {cp}, {tp}, {}]>, #dist.sharding<[{}, {cp}, {tp}, {}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{}, {cp}, {tp}, {}]>, #dist.sharding<[{}, {cp}, {tp}]>]
module attributes {dist.mesh = #dist.mesh<cp = 2, tp = 2>, dist.dims = {seq = ["cp"], heads = ["tp"]}} {
  func.func @split_sequences(%q: !q, %k: !q, %v: !q) -> !q {
    %out, %sums = model.attention %q, %k, %v {scale = 1.0, rate = 0.0, id = 0, causal} : (!q, !q, !q) -> (!q, !sums)
    return %out : !q
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>

// cp and then tp shard the stream's sequence. A product that uses tp for another dimension gathers only over tp. An op
// whose first operand is sharded only over the outer axis takes the inner axis from its next operand.
// CHECK-LABEL: func.func @outer_axes(
// CHECK: model.contract
// CHECK-SAME: dist.operands = [#dist.sharding<[{}, {cp}, {}]>, #dist.sharding<[{}, {tp}]>]
// CHECK-SAME: dist.shardings = [#dist.sharding<[{}, {cp}, {tp}]>]
// CHECK: model.mul
// CHECK-SAME: dist.operands = [#dist.sharding<[{}, {cp, tp}]>, #dist.sharding<[{}, {cp, tp}, {}]>]
module attributes {dist.mesh = #dist.mesh<cp = 2, tp = 2>, dist.dims = {seq = ["cp"], ffn = ["tp"]},
                   dist.sequence_parallel} {
  func.func @outer_axes(%x: !stream {model.role = "stream"}, %up: tensor<10x14xf32, #model.dims<hidden, ffn>>
      {model.role = "parameter"}, %weights: tensor<4x6xf32, #model.dims<batch, seq>> {model.role = "input"})
      -> (tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>, !stream) {
    %u = model.contract %x, %up : (!stream, tensor<10x14xf32, #model.dims<hidden, ffn>>) -> tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
    %y = model.mul %weights, %x : (tensor<4x6xf32, #model.dims<batch, seq>>, !stream) -> !stream
    return %u, %y : tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>, !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>

// Axes of size 1 and axes that the mesh does not have shard nothing. Two axes shard a dimension in order.
// CHECK-LABEL: func.func @axes(
// CHECK-SAME: dist.sharding = #dist.sharding<[{dp, ep}, {}, {}]>
module attributes {dist.mesh = #dist.mesh<dp = 2, ep = 2, tp = 1>,
                   dist.dims = {batch = ["dp", "ep"], seq = ["cp"], hidden = ["tp"]}, dist.sequence_parallel} {
  func.func @axes(%x: !stream {model.role = "stream"}) -> !stream {
    return %x : !stream
  }
}
