// RUN: espalier-opt %s -split-input-file -differentiate -propagate-shardings -insert-reshards -localize | FileCheck %s
// Recurrences and convolutions over split samples, heads and channels, and on shards of sequences. Sizes: batch 4, seq 6,
// heads 2, group 4, key 3, value 5; each axis has two devices.

!key = tensor<4x6x2x3xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<4x6x2x4x5xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<4x6x2x4xf32, #model.dims<batch, seq, heads, group>>

// The heads of a group share q and k and are on two ranks, so the gradients of q and k are summed over the ranks.
// CHECK-LABEL: func.func @groups(
// CHECK: model.recurrence %{{.*}} {delta} : (tensor<2x6x2x3xf32, {{.*}} -> tensor<2x6x2x2x5xf32
// CHECK: %[[DQ:[a-z0-9]+]], %[[DK:[a-z0-9]+]], {{.*}} = model.recurrence_grad %{{.*}} {delta}
// CHECK-NEXT: dist.all_reduce %[[DQ]] over ["tp"] "sum"
// CHECK-NEXT: dist.all_reduce %[[DK]] over ["tp"] "sum"
// CHECK-NOT: = dist.
// CHECK: return
module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 2, tp = 2>, dist.dims = {batch = ["dp"], group = ["tp"]}} {
  func.func @groups(%q: !key {model.role = "stream", model.name = "q"}, %k: !key {model.role = "stream", model.name = "k"},
                    %v: !value {model.role = "stream", model.name = "v"}, %d: !gate {model.role = "stream", model.name = "d"},
                    %b: !gate {model.role = "stream", model.name = "b"})
      -> (!value {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.recurrence %q, %k, %v, %d, %b {delta} : (!key, !key, !value, !gate, !gate) -> !value
    return %y : !value
  }
}

// -----

!key = tensor<4x6x2x3xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<4x6x2x5xf32, #model.dims<batch, seq, heads, value>>
!gate = tensor<4x6x2xf32, #model.dims<batch, seq, heads>>

// Each head is on one rank, with its q and k.
// CHECK-LABEL: func.func @heads(
// CHECK: model.recurrence %{{.*}} : (tensor<2x6x1x3xf32, {{.*}} -> tensor<2x6x1x5xf32
// CHECK: model.recurrence_grad %{{.*}} : {{.*}} -> (tensor<2x6x1x3xf32
// CHECK-NOT: = dist.
// CHECK: return
module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 2, tp = 2>, dist.dims = {batch = ["dp"], heads = ["tp"]}} {
  func.func @heads(%q: !key {model.role = "stream", model.name = "q"}, %k: !key {model.role = "stream", model.name = "k"},
                   %v: !value {model.role = "stream", model.name = "v"}, %d: !gate {model.role = "stream", model.name = "d"},
                   %b: !gate {model.role = "stream", model.name = "b"})
      -> (!value {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.recurrence %q, %k, %v, %d, %b : (!key, !key, !value, !gate, !gate) -> !value
    return %y : !value
  }
}

// -----

!x = tensor<4x6x10xf32, #model.dims<batch, seq, channels>>
!weight = tensor<10x3xf32, #model.dims<channels, taps>>

// Channels are split with their weights.
// CHECK-LABEL: func.func @convolution(
// CHECK: model.causal_conv %{{.*}} : (tensor<2x6x5xf32, {{.*}}, tensor<5x3xf32
// CHECK: model.causal_conv %{{.*}} {transposed} : (tensor<2x6x5xf32, {{.*}}, tensor<5x3xf32
// CHECK: model.causal_conv_grad %{{.*}} : {{.*}} -> tensor<5x3xf32
// CHECK-NOT: = dist.
// CHECK: return
module attributes {dist.mesh = #dist.mesh<pp = 2, dp = 2, tp = 2>, dist.dims = {batch = ["dp"], channels = ["tp"]}} {
  func.func @convolution(%x: !x {model.role = "stream", model.name = "x"},
                         %w: !weight {model.role = "parameter", model.name = "w"})
      -> (!x {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.causal_conv %x, %w : (!x, !weight) -> !x
    return %y : !x
  }
}

// -----

// The ranks exchange what their runs do to states: [batch, runs, heads, key, columns]. It does not depend on the length of
// the sequence.
// CHECK-LABEL: func.func @short(
// CHECK: %[[TERMS:.*]] = model.shard_states %{{.*}} {delta, first_position = #dist.origin<cp * 4>, whole = 8 : i64} : (tensor<4x4x2x3xf32, {{.*}} -> tensor<4x1x2x3x8xf32
// CHECK-NEXT: %[[BORDERS:.*]] = dist.all_gather %[[TERMS]] over ["cp"] dim 1 : {{.*}} -> tensor<4x2x2x3x8xf32
// CHECK-NEXT: model.shard_recurrence %{{.*}}, %[[BORDERS]] {delta, first_position
// CHECK: model.shard_states %{{.*}} {backward, delta, {{.*}} -> tensor<4x1x2x3x5xf32
// CHECK-NEXT: %[[ENDS:.*]] = dist.all_gather %{{.*}} over ["cp"] dim 1 : {{.*}} -> tensor<4x2x2x3x5xf32
// CHECK-NEXT: model.shard_recurrence_grad %{{.*}}, %[[ENDS]] {delta, first_position
// CHECK-NOT: = dist.
// CHECK: return
!key = tensor<4x8x2x3xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<4x8x2x5xf32, #model.dims<batch, seq, heads, value>>
!gate = tensor<4x8x2xf32, #model.dims<batch, seq, heads>>
module attributes {dist.mesh = #dist.mesh<pp = 1, dp = 1, cp = 2, tp = 1>, dist.dims = {seq = ["cp"]}} {
  func.func @short(%q: !key {model.role = "stream", model.name = "q"}, %k: !key {model.role = "stream", model.name = "k"},
                    %v: !value {model.role = "stream", model.name = "v"}, %d: !gate {model.role = "stream", model.name = "d"},
                    %b: !gate {model.role = "stream", model.name = "b"})
      -> (!value {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.recurrence %q, %k, %v, %d, %b {delta} : (!key, !key, !value, !gate, !gate) -> !value
    return %y : !value
  }
}

// -----

// The ranks exchange what their runs do to states: [batch, runs, heads, key, columns]. It does not depend on the length of
// the sequence.
// CHECK-LABEL: func.func @long(
// CHECK: %[[TERMS:.*]] = model.shard_states %{{.*}} {delta, first_position = #dist.origin<cp * 4096>, whole = 8192 : i64} : (tensor<4x4096x2x3xf32, {{.*}} -> tensor<4x1x2x3x8xf32
// CHECK-NEXT: %[[BORDERS:.*]] = dist.all_gather %[[TERMS]] over ["cp"] dim 1 : {{.*}} -> tensor<4x2x2x3x8xf32
// CHECK-NEXT: model.shard_recurrence %{{.*}}, %[[BORDERS]] {delta, first_position
// CHECK: model.shard_states %{{.*}} {backward, delta, {{.*}} -> tensor<4x1x2x3x5xf32
// CHECK-NEXT: %[[ENDS:.*]] = dist.all_gather %{{.*}} over ["cp"] dim 1 : {{.*}} -> tensor<4x2x2x3x5xf32
// CHECK-NEXT: model.shard_recurrence_grad %{{.*}}, %[[ENDS]] {delta, first_position
// CHECK-NOT: = dist.
// CHECK: return
!key = tensor<4x8192x2x3xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<4x8192x2x5xf32, #model.dims<batch, seq, heads, value>>
!gate = tensor<4x8192x2xf32, #model.dims<batch, seq, heads>>
module attributes {dist.mesh = #dist.mesh<pp = 1, dp = 1, cp = 2, tp = 1>, dist.dims = {seq = ["cp"]}} {
  func.func @long(%q: !key {model.role = "stream", model.name = "q"}, %k: !key {model.role = "stream", model.name = "k"},
                    %v: !value {model.role = "stream", model.name = "v"}, %d: !gate {model.role = "stream", model.name = "d"},
                    %b: !gate {model.role = "stream", model.name = "b"})
      -> (!value {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.recurrence %q, %k, %v, %d, %b {delta} : (!key, !key, !value, !gate, !gate) -> !value
    return %y : !value
  }
}

// -----

// In zigzag order a rank has two runs, and the ops are marked.
// CHECK-LABEL: func.func @zigzag(
// CHECK: model.shard_states %{{.*}} {delta, dist.zigzag, first_position = #dist.origin<cp * 2>, {{.*}} -> tensor<4x2x2x3x8xf32
// CHECK-NEXT: dist.all_gather %{{.*}} over ["cp"] dim 1 {dist.zigzag} : {{.*}} -> tensor<4x4x2x3x8xf32
// CHECK-NEXT: model.shard_recurrence %{{.*}} {delta, dist.zigzag, first_position
!key = tensor<4x8x2x3xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<4x8x2x5xf32, #model.dims<batch, seq, heads, value>>
!gate = tensor<4x8x2xf32, #model.dims<batch, seq, heads>>
module attributes {dist.mesh = #dist.mesh<pp = 1, dp = 1, cp = 2, tp = 1>, dist.dims = {seq = ["cp"]}, dist.zigzag} {
  func.func @zigzag(%q: !key {model.role = "stream", model.name = "q"}, %k: !key {model.role = "stream", model.name = "k"},
                    %v: !value {model.role = "stream", model.name = "v"}, %d: !gate {model.role = "stream", model.name = "d"},
                    %b: !gate {model.role = "stream", model.name = "b"})
      -> (!value {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.recurrence %q, %k, %v, %d, %b {delta} : (!key, !key, !value, !gate, !gate) -> !value
    return %y : !value
  }
}

// -----

// Convolutions read the last positions of each run, and transposed ones the first positions. The gradient of the weight is
// a partial sum.
// CHECK-LABEL: func.func @edges(
// CHECK: model.shard_edges %{{.*}} {first_position = {{.*}} -> tensor<4x3x10xf32
// CHECK-NEXT: %[[LAST:.*]] = dist.all_gather %{{.*}} over ["cp"] dim 1 : {{.*}} -> tensor<4x6x10xf32
// CHECK-NEXT: model.shard_conv %{{.*}}, %[[LAST]], %{{.*}} {first_position
// CHECK: model.shard_edges %{{.*}} {first, first_position = {{.*}} -> tensor<4x3x10xf32
// CHECK-NEXT: %[[FIRST:.*]] = dist.all_gather
// CHECK-NEXT: model.shard_edges %{{.*}} {first, first_position = {{.*}} -> tensor<4x3xi32
// CHECK-NEXT: %[[LIMITS:.*]] = dist.all_gather
// CHECK-NEXT: model.shard_conv %{{.*}}, %[[FIRST]], %{{.*}}, %[[LIMITS]] {first_position = {{.*}}, transposed}
// CHECK: model.shard_conv_grad %{{.*}} {first_position
// CHECK: return
!x = tensor<4x16x10xf32, #model.dims<batch, seq, channels>>
!weight = tensor<10x4xf32, #model.dims<channels, taps>>
!from = tensor<4x16xi32, #model.dims<batch, seq>>
module attributes {dist.mesh = #dist.mesh<pp = 1, dp = 1, cp = 2, tp = 1>, dist.dims = {seq = ["cp"]}} {
  func.func @edges(%x: !x {model.role = "stream", model.name = "x"}, %w: !weight {model.role = "parameter", model.name = "w"},
                    %from: !from {model.role = "input", model.name = "visible_from"})
      -> (!x {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.causal_conv %x, %w, %from : (!x, !weight, !from) -> !x
    return %y : !x
  }
}
