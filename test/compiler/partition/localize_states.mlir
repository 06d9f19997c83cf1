// RUN: espalier-opt %s -split-input-file -differentiate -propagate-shardings -insert-reshards -localize | FileCheck %s
// Recurrences and convolutions over split samples, heads and channels. Sizes: batch 4, seq 6, heads 2, group 4, key 3,
// value 5; each axis has two devices.

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
