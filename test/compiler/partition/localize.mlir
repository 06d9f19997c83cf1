// RUN: espalier-opt %s -split-input-file -differentiate -propagate-shardings -insert-reshards -localize | FileCheck %s
// Sizes: batch 4, seq 6, hidden 10, ffn 14, heads 8, head_dim 12, vocab 22; each axis has two devices.

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// Tensor parallelism: one all-reduce after the pair in forward, and one in backward. Types become those of one device,
// and arguments keep their sharding.
// CHECK-LABEL: func.func @pair(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x6x10xf32, #model.dims<batch, seq, hidden>> {dist.sharding = #dist.sharding<[{dp}, {}, {}]>
// CHECK-SAME: %[[UP:[a-z0-9]+]]: tensor<10x7xf32, #model.dims<hidden, ffn>>
// CHECK-SAME: %[[DOWN:[a-z0-9]+]]: tensor<7x10xf32, #model.dims<ffn, hidden>>
// CHECK-NEXT: %[[U:.*]] = model.contract %[[X]], %[[UP]] : {{.*}} -> tensor<2x6x7xf32, #model.dims<batch, seq, ffn>>
// CHECK-NEXT: %[[PART:.*]] = model.contract %[[U]], %[[DOWN]]
// CHECK-NEXT: %[[Y:.*]] = dist.all_reduce %[[PART]] over ["tp"] "sum"
// CHECK-NEXT: %[[DY:.*]] = model.cotangent %[[Y]]
// CHECK-NEXT: %[[DU:.*]] = model.contract %[[DY]], %[[DOWN]]
// CHECK-NEXT: model.contract %[[U]], %[[DY]]
// CHECK-NEXT: %[[DPART:.*]] = model.contract %[[DU]], %[[UP]]
// CHECK-NEXT: %[[DX:.*]] = dist.all_reduce %[[DPART]] over ["tp"] "sum"
// CHECK-NEXT: model.contract %[[X]], %[[DU]]
// CHECK-NOT: = dist.
// CHECK: return %[[Y]], %[[DX]]
module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 2, tp = 2>, dist.dims = {batch = ["dp"], ffn = ["tp"]}} {
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

// Sequence parallelism: an all-gather before the pair and a reduce-scatter after it. Backward gathers the cotangent and
// again the stream, and scatters the gradient. The bias gradient needs no collective, because it stays partial.
// CHECK-LABEL: func.func @sequence_parallel(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<4x3x10xf32
// CHECK-SAME: %[[UP:[a-z0-9]+]]: tensor<10x7xf32
// CHECK-SAME: {dist.sharding = #dist.sharding<[{}], partial = {tp}>, model.name = "b", model.role = "accumulator"}
// CHECK-NEXT: %[[WHOLE:.*]] = dist.all_gather %[[X]] over ["tp"] dim 1 : {{.*}} -> tensor<4x6x10xf32
// CHECK-NEXT: %[[U:.*]] = model.contract %[[WHOLE]], %[[UP]]
// CHECK-NEXT: %[[PART:.*]] = model.contract %[[U]],
// CHECK-NEXT: %[[D:.*]] = dist.reduce_scatter %[[PART]] over ["tp"] dim 1 : {{.*}} -> tensor<4x3x10xf32
// CHECK-NEXT: %[[Y:.*]] = model.add %[[D]],
// CHECK-NEXT: %[[DY:.*]] = model.cotangent %[[Y]]
// CHECK-NEXT: %[[DB:.*]] = model.reduce_sum %[[DY]] : (tensor<4x3x10xf32
// CHECK-NEXT: %[[WHOLE_DY:.*]] = dist.all_gather %[[DY]] over ["tp"] dim 1
// CHECK-NEXT: %[[DU:.*]] = model.contract %[[WHOLE_DY]],
// CHECK-NEXT: model.contract %[[U]], %[[WHOLE_DY]]
// CHECK-NEXT: %[[DPART:.*]] = model.contract %[[DU]], %[[UP]]
// CHECK-NEXT: %[[DX:.*]] = dist.reduce_scatter %[[DPART]] over ["tp"] dim 1
// CHECK-NEXT: %[[AGAIN:.*]] = dist.all_gather %[[X]] over ["tp"] dim 1
// CHECK-NEXT: model.contract %[[AGAIN]], %[[DU]]
// CHECK: %[[NEW:.*]] = model.accumulate %{{.*}}, %[[DB]]
// CHECK: return %[[Y]], %[[DX]], %{{.*}}, %{{.*}}, %[[NEW]]
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}, dist.sequence_parallel} {
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
!table = tensor<22x10xf32, #model.dims<vocab, hidden>>
!tokens = tensor<4x6xi32, #model.dims<batch, seq>>

// Vocabulary-parallel embedding: forward and backward have the first row of the device's shard.
// CHECK-LABEL: func.func @embedding(
// CHECK-SAME: %[[TABLE:[a-z0-9]+]]: tensor<11x10xf32
// CHECK: %[[ROWS:.*]] = model.embed %[[TABLE]], %{{.*}} {first_row = #dist.origin<tp * 11>}
// CHECK-NEXT: dist.all_reduce %[[ROWS]] over ["tp"] "sum"
// CHECK: model.embed_grad %{{.*}}, %{{.*}} {first_row = #dist.origin<tp * 11>} : {{.*}} -> tensor<11x10xf32
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {vocab = ["tp"]}} {
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

// Vocabulary-parallel cross entropy: a maximum and two sums are reduced over tp, none of them with the size of the
// logits. The origin of the device's columns locates the padded tail and the label's column.
// CHECK-LABEL: func.func @cross_entropy(
// CHECK: %[[LOGITS:.*]] = model.mask_tail %{{.*}} first_column = #dist.origin<tp * 11>, valid = 21 : i64}
// CHECK-NEXT: %[[OWN_MAX:.*]] = model.reduce_max %[[LOGITS]]
// CHECK-NEXT: %[[MAX:.*]] = dist.all_reduce %[[OWN_MAX]] over ["tp"] "max" : (tensor<4x6xf32
// CHECK-NEXT: %[[SHIFTED:.*]] = model.sub %[[LOGITS]], %[[MAX]]
// CHECK-NEXT: %[[POWERS:.*]] = model.exp %[[SHIFTED]]
// CHECK-NEXT: %[[OWN_SUM:.*]] = model.reduce_sum %[[POWERS]]
// CHECK-NEXT: %[[SUM:.*]] = dist.all_reduce %[[OWN_SUM]] over ["tp"] "sum" : (tensor<4x6xf32
// CHECK-NEXT: model.log %[[SUM]]
// CHECK-NEXT: %[[OWN_PICK:.*]] = model.pick %[[LOGITS]], %{{.*}} {first_column = #dist.origin<tp * 11>}
// CHECK-NEXT: dist.all_reduce %[[OWN_PICK]] over ["tp"] "sum" : (tensor<4x6xf32
// CHECK: model.cotangent
// CHECK: model.pick_grad %{{.*}} {first_column = #dist.origin<tp * 11>} : {{.*}} -> tensor<4x6x11xf32
// CHECK-NOT: dist.all
// CHECK: return
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {vocab = ["tp"]}} {
  func.func @cross_entropy(%x: !logits {model.role = "input", model.name = "x"},
                           %labels: !labels {model.role = "input", model.name = "labels"},
                           %p: !logits {model.role = "parameter", model.name = "p"})
      -> (!rows {model.role = "loss", model.name = "loss"}) attributes {model.segment} {
    %shifted_by_p = model.add %x, %p : (!logits, !logits) -> !logits
    %masked = model.mask_tail %shifted_by_p {valid = 21, fill = -30000.0} : (!logits) -> !logits
    %max = model.reduce_max %masked : (!logits) -> !rows
    %shifted = model.sub %masked, %max : (!logits, !rows) -> !logits
    %powers = model.exp %shifted : (!logits) -> !logits
    %total = model.reduce_sum %powers : (!logits) -> !rows
    %log = model.log %total : (!rows) -> !rows
    %picked = model.pick %masked, %labels : (!logits, !labels) -> !rows
    %losses = model.sub %log, %picked : (!rows, !rows) -> !rows
    return %losses : !rows
  }
}

// -----

!rows = tensor<4x6xf32, #model.dims<batch, seq>>

// Statistics are summed over all devices at the end of a step. The sum over dp is partial and counts once. The two
// devices of tp hold the same number, so each adds half of it. Stages (pp) do not share a statistic.
// CHECK-LABEL: func.func @replicas(
// CHECK-SAME: {dist.sharding = #dist.sharding<[], partial = {dp}>, model.role = "statistic"}
// CHECK: %[[COUNT:.*]] = model.reduce_sum
// CHECK-NEXT: %[[SHARE:.*]] = model.constant 5.000000e-01 : tensor<f32>
// CHECK-NEXT: %[[OWN:.*]] = model.mul %[[COUNT]], %[[SHARE]]
// CHECK-NEXT: %[[NEW:.*]] = model.accumulate %{{.*}}, %[[OWN]]
// CHECK-NEXT: return %[[NEW]]
module attributes {dist.mesh = #dist.mesh<pp = 3, dp = 2, tp = 2>, dist.dims = {batch = ["dp"]}} {
  func.func @replicas(%weights: !rows {model.role = "input"}, %sum: tensor<f32> {model.role = "statistic"})
      -> (tensor<f32> {model.role = "statistic"}) {
    %count = model.reduce_sum %weights : (!rows) -> tensor<f32>
    %new = model.accumulate %sum, %count : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %new : tensor<f32>
  }
}

// -----

!rows = tensor<4x6xf32, #model.dims<batch, seq>>

// Without replicas there are no weights.
// CHECK-LABEL: func.func @no_replicas(
// CHECK-NOT: model.mul
// CHECK: return
module attributes {dist.mesh = #dist.mesh<pp = 3, dp = 2, tp = 1>, dist.dims = {batch = ["dp"]}} {
  func.func @no_replicas(%weights: !rows {model.role = "input"}, %sum: tensor<f32> {model.role = "statistic"})
      -> (tensor<f32> {model.role = "statistic"}) {
    %count = model.reduce_sum %weights : (!rows) -> tensor<f32>
    %new = model.accumulate %sum, %count : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %new : tensor<f32>
  }
}

// -----

!rows = tensor<4x6xf32, #model.dims<batch, seq>>

// Gradients have no weights, because their replicas are not summed.
// CHECK-LABEL: func.func @gradient_replicas(
// CHECK-NOT: model.mul
// CHECK: return
module attributes {dist.mesh = #dist.mesh<tp = 2>} {
  func.func @gradient_replicas(%weights: !rows {model.role = "input"}, %sum: tensor<f32> {model.role = "accumulator"})
      -> (tensor<f32> {model.role = "accumulator"}) {
    %count = model.reduce_sum %weights : (!rows) -> tensor<f32>
    %new = model.accumulate %sum, %count : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %new : tensor<f32>
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>

// Random bits depend on global positions. So dropout has the origins of its samples and its sequence (later
// micro-batches follow at the offset of the whole batch) and the unsharded sizes. Its derivative drops the same
// elements.
// CHECK-LABEL: func.func @dropout(
// CHECK: model.dropout %{{.*}} {id = 3 : i64, origins = [#dist.origin<dp * 2, micro_batch * 4>, #dist.origin<tp * 3>, unit], rate = 1.000000e-01 : f64, unsplit = array<i64: 4, 6, 10>} : (tensor<2x3x10xf32
// CHECK: model.cotangent
// CHECK: model.dropout %{{.*}} {id = 3 : i64, origins = [#dist.origin<dp * 2, micro_batch * 4>, #dist.origin<tp * 3>, unit], rate = 1.000000e-01 : f64, unsplit = array<i64: 4, 6, 10>} : (tensor<2x3x10xf32
module attributes {dist.mesh = #dist.mesh<dp = 2, tp = 2>, dist.dims = {batch = ["dp"]}, dist.sequence_parallel} {
  func.func @dropout(%x: !stream {model.role = "stream", model.name = "x"})
      -> (!stream {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.dropout %x {rate = 0.1, id = 3} : (!stream) -> !stream
    return %y : !stream
  }
}

// -----

!q = tensor<4x6x8x12xf32, #model.dims<batch, seq, heads, head_dim>>
!sums = tensor<4x6x8xf32, #model.dims<batch, seq, heads>>

// Attention runs on the device's heads, and its dropout has the first head.
// CHECK-LABEL: func.func @attention(
// CHECK: model.attention %{{.*}} {causal, id = 1 : i64, origins = [#dist.origin<micro_batch * 4>, unit, #dist.origin<tp * 4>, unit], rate = 2.000000e-01 : f64, scale = 1.000000e+00 : f64, unsplit = array<i64: 4, 6, 8, 12>} : {{.*}} -> (tensor<4x6x4x12xf32, {{.*}}>, tensor<4x6x4xf32, {{.*}}>)
// CHECK: model.attention_grad {{.*}} origins = [#dist.origin<micro_batch * 4>, unit, #dist.origin<tp * 4>, unit], {{.*}}, unsplit = array<i64: 4, 6, 8, 12>}
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {heads = ["tp"]}} {
  func.func @attention(%q: !q {model.role = "stream", model.name = "q"}, %k: !q {model.role = "input", model.name = "k"},
                       %v: !q {model.role = "input", model.name = "v"})
      -> (!q {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %out, %sums = model.attention %q, %k, %v {scale = 1.0, rate = 0.2, id = 1, causal} : (!q, !q, !q) -> (!q, !sums)
    return %out : !q
  }
}

// -----

!q = tensor<4x6x8x12xf32, #model.dims<batch, seq, heads, head_dim>>
!sums = tensor<4x6x8xf32, #model.dims<batch, seq, heads>>

// A sharded sequence: the device's queries attend to all keys and values, which are gathered, and gathered again for
// backward. The gradients of keys and values, summed over the queries of all devices, are reduce-scattered. The mask
// and the random bits have the first query.
// CHECK-LABEL: func.func @split_attention(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<4x3x8x12xf32
// CHECK-SAME: %[[K:[a-z0-9]+]]: tensor<4x3x8x12xf32
// CHECK-SAME: %[[V:[a-z0-9]+]]: tensor<4x3x8x12xf32
// CHECK-NEXT: %[[KEYS:.*]] = dist.all_gather %[[K]] over ["cp"] dim 1 : {{.*}} -> tensor<4x6x8x12xf32
// CHECK-NEXT: %[[VALUES:.*]] = dist.all_gather %[[V]] over ["cp"] dim 1
// CHECK-NEXT: model.attention %[[Q]], %[[KEYS]], %[[VALUES]] {{.*}} origins = [#dist.origin<micro_batch * 4>, #dist.origin<cp * 3>, unit, unit], {{.*}}, unsplit = array<i64: 4, 6, 8, 12>} : {{.*}} -> (tensor<4x3x8x12xf32, {{.*}}>, tensor<4x3x8xf32, {{.*}}>)
// CHECK: %[[KEYS:.*]] = dist.all_gather %[[K]] over ["cp"] dim 1
// CHECK-NEXT: %[[VALUES:.*]] = dist.all_gather %[[V]] over ["cp"] dim 1
// CHECK-NEXT: %{{.*}}, %[[DK:.*]], %[[DV:.*]] = model.attention_grad %[[Q]], %[[KEYS]], %[[VALUES]], {{.*}} -> (tensor<4x3x8x12xf32, {{.*}}>, tensor<4x6x8x12xf32, {{.*}}>, tensor<4x6x8x12xf32, {{.*}}>)
// CHECK-NEXT: dist.reduce_scatter %[[DK]] over ["cp"] dim 1 : {{.*}} -> tensor<4x3x8x12xf32
// CHECK-NEXT: dist.reduce_scatter %[[DV]] over ["cp"] dim 1 : {{.*}} -> tensor<4x3x8x12xf32
module attributes {dist.mesh = #dist.mesh<cp = 2>, dist.dims = {seq = ["cp"]}} {
  func.func @split_attention(%q: !q {model.role = "stream", model.name = "q"},
                             %k: !q {model.role = "input", model.name = "k"},
                             %v: !q {model.role = "input", model.name = "v"})
      -> (!q {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %out, %sums = model.attention %q, %k, %v {scale = 1.0, rate = 0.2, id = 1, causal} : (!q, !q, !q) -> (!q, !sums)
    return %out : !q
  }
}

// -----

!zigzag = tensor<4x8x8x12xf32, #model.dims<batch, seq, heads, head_dim>>
!zigzag_sums = tensor<4x8x8xf32, #model.dims<batch, seq, heads>>

// Zigzag order: device r of 2 has positions [2 r, 2 r + 2) and [6 - 2 r, 8 - 2 r). Its origin is that of the first run.
// Collectives over cp keep the order; those over tp have no order.
// CHECK-LABEL: func.func @zigzag(
// CHECK: dist.all_gather %{{.*}} over ["cp"] dim 1 {dist.zigzag}
// CHECK: dist.all_gather %{{.*}} over ["cp"] dim 1 {dist.zigzag}
// CHECK: model.attention {{.*}}dist.zigzag{{.*}} origins = [#dist.origin<micro_batch * 4>, #dist.origin<cp * 2>, unit, unit]
// CHECK: model.attention_grad {{.*}}dist.zigzag{{.*}} origins = [#dist.origin<micro_batch * 4>, #dist.origin<cp * 2>, unit, unit]
// CHECK-NEXT: dist.reduce_scatter %{{.*}} over ["cp"] dim 1 {dist.zigzag}
// CHECK-NEXT: dist.reduce_scatter %{{.*}} over ["cp"] dim 1 {dist.zigzag}
module attributes {dist.mesh = #dist.mesh<cp = 2>, dist.dims = {seq = ["cp"]}, dist.zigzag} {
  func.func @zigzag(%q: !zigzag {model.role = "stream", model.name = "q"},
                    %k: !zigzag {model.role = "input", model.name = "k"},
                    %v: !zigzag {model.role = "input", model.name = "v"})
      -> (!zigzag {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %out, %sums = model.attention %q, %k, %v {scale = 1.0, rate = 0.2, id = 1, causal}
        : (!zigzag, !zigzag, !zigzag) -> (!zigzag, !zigzag_sums)
    return %out : !zigzag
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!rows = tensor<4x6xf32, #model.dims<batch, seq>>

// If a sharded stream uses a replicated value, the value is sliced without communication.
// CHECK-LABEL: func.func @slice(
// CHECK: %[[PART:.*]] = dist.slice %{{.*}} over ["tp"] dim 1 : (tensor<4x6xf32, {{.*}}) -> tensor<4x3xf32
// CHECK-NEXT: model.mul %{{.*}}, %[[PART]]
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.sequence_parallel} {
  func.func @slice(%x: !stream {model.role = "stream"}, %weights: !rows {model.role = "input"}) -> !stream {
    %y = model.mul %x, %weights : (!stream, !rows) -> !stream
    return %y : !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!tokens = tensor<4x6xi32, #model.dims<batch, seq>>
!table = tensor<22x10xf32, #model.dims<vocab, hidden>>

// Two axes shard one dimension; the first axis has the larger stride.
// CHECK-LABEL: func.func @two_axes(
// CHECK-SAME: tensor<1x6xi32
// CHECK: model.dropout %{{.*}} origins = [#dist.origin<dp * 2, ep * 1, micro_batch * 4>, unit, unit]
module attributes {dist.mesh = #dist.mesh<dp = 2, ep = 2>, dist.dims = {batch = ["dp", "ep"]}} {
  func.func @two_axes(%table: !table {model.role = "parameter"}, %tokens: !tokens {model.role = "input"})
      -> (!stream {model.role = "stream"}) {
    %x = model.embed %table, %tokens : (!table, !tokens) -> !stream
    %y = model.dropout %x {rate = 0.1, id = 0} : (!stream) -> !stream
    return %y : !stream
  }
}

// -----

!x = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!places = tensor<2x4x6xi32, #model.dims<choice, batch, seq>>
!rows = tensor<8x4x3x10xf32, #model.dims<expert, batch, capacity, hidden>>
!wide = tensor<8x4x3x12xf32, #model.dims<expert, batch, capacity, ffn>>
!up = tensor<8x10x12xf32, #model.dims<expert, hidden, ffn>>
!down = tensor<8x12x10xf32, #model.dims<expert, ffn, hidden>>

// Tokens are routed on the device of their sample, over (dp, ep). Between dispatch and combine, ep shards the experts:
// an all-to-all before and one after. The sum over tp is computed before the second one. Gradients of experts are sums
// over dp.
// CHECK-LABEL: func.func @experts(
// CHECK-SAME: tensor<4x10x6xf32, {{.*}}> {dist.sharding = #dist.sharding<[{ep}, {}, {tp}]>
// CHECK-SAME: dist.sharding = #dist.sharding<[{ep}, {}, {tp}], partial = {dp}>
// CHECK: %[[SENT:.*]] = model.dispatch {{.*}} -> tensor<8x1x3x10xf32
// CHECK: %[[MINE:.*]] = dist.all_to_all %[[SENT]] over ["ep"] split 0 concat 1 : {{.*}} -> tensor<4x2x3x10xf32
// CHECK: model.contract %[[MINE]], {{.*}} -> tensor<4x2x3x6xf32
// CHECK: %[[SUM:.*]] = dist.all_reduce %{{.*}} over ["tp"] "sum" : (tensor<4x2x3x10xf32
// CHECK: %[[BACK:.*]] = dist.all_to_all %[[SUM]] over ["ep"] split 1 concat 0 : {{.*}} -> tensor<8x1x3x10xf32
// CHECK: model.combine %{{.*}}, %{{.*}}, %[[BACK]] {{.*}} -> tensor<1x6x10xf32
// CHECK: model.cotangent
// CHECK: model.dispatch
// CHECK: dist.all_to_all {{.*}} split 0 concat 1
// CHECK: dist.all_to_all {{.*}} split 1 concat 0
// CHECK: model.combine {{.*}} -> tensor<1x6x10xf32
module attributes {dist.mesh = #dist.mesh<dp = 2, ep = 2, tp = 2>,
                   dist.dims = {batch = ["dp", "ep"], expert = ["ep"], ffn = ["tp"]}} {
  func.func @experts(%x: !x {model.role = "stream", model.name = "x"}, %ids: !places {model.role = "input"},
                     %slots: !places {model.role = "input"}, %up: !up {model.role = "parameter", model.name = "up"},
                     %down: !down {model.role = "parameter", model.name = "down"})
      -> (!x {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %sent = model.dispatch %ids, %slots, %x : (!places, !places, !x) -> !rows
    %wide = model.contract %sent, %up : (!rows, !up) -> !wide
    %narrow = model.contract %wide, %down : (!wide, !down) -> !rows
    %y = model.combine %ids, %slots, %narrow : (!places, !places, !rows) -> !x
    return %y : !x
  }
}

// -----

!x = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!places = tensor<2x4x6xi32, #model.dims<choice, batch, seq>>
!rows = tensor<8x4x3x10xf32, #model.dims<expert, batch, capacity, hidden>>
!weight = tensor<8x10x10xf32, #model.dims<expert, hidden, out>>
!out = tensor<8x4x3x10xf32, #model.dims<expert, batch, capacity, out>>

// Unsharded experts on (tp, ep): rows that all tensor ranks have are sliced before the all-to-all and gathered after
// it.
// CHECK-LABEL: func.func @whole_experts(
// CHECK: %[[SENT:.*]] = model.dispatch {{.*}} -> tensor<8x2x3x10xf32
// CHECK: %[[PART:.*]] = dist.slice %[[SENT]] over ["tp"] dim 0 : {{.*}} -> tensor<4x2x3x10xf32
// CHECK: %[[MINE:.*]] = dist.all_to_all %[[PART]] over ["ep"] split 0 concat 1 : {{.*}} -> tensor<2x4x3x10xf32
// CHECK: %[[OUT:.*]] = model.contract %[[MINE]], {{.*}} -> tensor<2x4x3x10xf32
// CHECK: %[[BACK:.*]] = dist.all_to_all %[[OUT]] over ["ep"] split 1 concat 0 : {{.*}} -> tensor<4x2x3x10xf32
// CHECK: dist.all_gather %[[BACK]] over ["tp"] dim 0 : {{.*}} -> tensor<8x2x3x10xf32
module attributes {dist.mesh = #dist.mesh<ep = 2, tp = 2>, dist.dims = {batch = ["ep"], expert = ["tp", "ep"]}} {
  func.func @whole_experts(%x: !x {model.role = "stream", model.name = "x"}, %ids: !places {model.role = "input"},
                           %slots: !places {model.role = "input"},
                           %w: !weight {model.role = "parameter", model.name = "w"})
      -> (tensor<4x6x10xf32, #model.dims<batch, seq, out>> {model.role = "stream", model.name = "y"})
      attributes {model.segment} {
    %sent = model.dispatch %ids, %slots, %x : (!places, !places, !x) -> !rows
    %out = model.contract %sent, %w : (!rows, !weight) -> !out
    %y = model.combine %ids, %slots, %out : (!places, !places, !out) -> tensor<4x6x10xf32, #model.dims<batch, seq, out>>
    return %y : tensor<4x6x10xf32, #model.dims<batch, seq, out>>
  }
}

// -----

!x = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!places = tensor<2x4x6xi32, #model.dims<choice, batch, seq>>
!rows = tensor<8x4x6x10xf32, #model.dims<expert, batch, capacity, hidden>>
!weight = tensor<8x10x10xf32, #model.dims<expert, hidden, out>>
!out = tensor<8x4x6x10xf32, #model.dims<expert, batch, capacity, out>>

// Experts over (cp, ep), with a slot for each token: an all-to-all of the slots over cp before that of the samples over
// ep, and after it on the way back. Slots have no order, zigzag or other.
// CHECK-LABEL: func.func @folded_experts(
// CHECK-SAME: dist.sharding = #dist.sharding<[{cp, ep}, {}, {}], partial = {dp}>
// CHECK: %[[SENT:.*]] = model.dispatch {{.*}} -> tensor<8x1x3x10xf32
// CHECK: %[[NEAR:.*]] = dist.all_to_all %[[SENT]] over ["cp"] split 0 concat 2 : {{.*}} -> tensor<4x1x6x10xf32
// CHECK: %[[MINE:.*]] = dist.all_to_all %[[NEAR]] over ["ep"] split 0 concat 1 : {{.*}} -> tensor<2x2x6x10xf32
// CHECK: %[[OUT:.*]] = model.contract %[[MINE]], {{.*}} -> tensor<2x2x6x10xf32
// CHECK: %[[BACK:.*]] = dist.all_to_all %[[OUT]] over ["ep"] split 1 concat 0 : {{.*}} -> tensor<4x1x6x10xf32
// CHECK: %[[HERE:.*]] = dist.all_to_all %[[BACK]] over ["cp"] split 2 concat 0 : {{.*}} -> tensor<8x1x3x10xf32
// CHECK: model.combine %{{.*}}, %{{.*}}, %[[HERE]]
module attributes {dist.mesh = #dist.mesh<dp = 2, cp = 2, ep = 2>, dist.zigzag,
                   dist.dims = {batch = ["dp", "ep"], seq = ["cp"], capacity = ["cp"], expert = ["cp", "ep"]}} {
  func.func @folded_experts(%x: !x {model.role = "stream", model.name = "x"}, %ids: !places {model.role = "input"},
                            %slots: !places {model.role = "input"},
                            %w: !weight {model.role = "parameter", model.name = "w"})
      -> (tensor<4x6x10xf32, #model.dims<batch, seq, out>> {model.role = "stream", model.name = "y"})
      attributes {model.segment} {
    %sent = model.dispatch %ids, %slots, %x : (!places, !places, !x) -> !rows
    %out = model.contract %sent, %w : (!rows, !weight) -> !out
    %y = model.combine %ids, %slots, %out : (!places, !places, !out) -> tensor<4x6x10xf32, #model.dims<batch, seq, out>>
    return %y : tensor<4x6x10xf32, #model.dims<batch, seq, out>>
  }
}
