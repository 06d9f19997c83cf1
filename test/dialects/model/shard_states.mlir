// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// What runs of positions do to the state of a recurrence.

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// A is a matrix for each head with the delta rule.
// CHECK-LABEL: func.func @delta(
// CHECK: model.shard_states %{{.*}} {delta, first_position = #dist.origin<cp * 6>, whole = 24 : i64}
func.func @delta(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate) -> tensor<2x1x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>> {
  %y = model.shard_states %q, %k, %v, %d, %b {delta, first_position = #dist.origin<cp * 6>, whole = 24 : i64} : (!key, !key, !value, !gate, !gate) -> tensor<2x1x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
  return %y : tensor<2x1x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
}

// Without it A is diagonal. In zigzag order there are two runs.
// CHECK-LABEL: func.func @diagonal(
// CHECK: model.shard_states %{{.*}} : {{.*}} -> tensor<2x2x2x3x4x7xf32
func.func @diagonal(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate, %from: !from) -> tensor<2x2x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>> {
  %y = model.shard_states %q, %k, %v, %d, %b, %from {first_position = #dist.origin<cp * 6>, whole = 24 : i64} : (!key, !key, !value, !gate, !gate, !from) -> tensor<2x2x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
  return %y : tensor<2x2x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
}

// C has the columns of v.
// CHECK-LABEL: func.func @backward(
// CHECK: model.shard_states %{{.*}} {backward, delta
func.func @backward(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate) -> tensor<2x1x2x3x4x6xf32, #model.dims<batch, seq, heads, group, key, value>> {
  %y = model.shard_states %q, %k, %v, %d, %b {backward, delta, first_position = #dist.origin<cp * 6>, whole = 24 : i64} : (!key, !key, !value, !gate, !gate) -> tensor<2x1x2x3x4x6xf32, #model.dims<batch, seq, heads, group, key, value>>
  return %y : tensor<2x1x2x3x4x6xf32, #model.dims<batch, seq, heads, group, key, value>>
}
