// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// A recurrence on a shard of a sequence, with the borders of all shards.

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// CHECK-LABEL: func.func @shard(
// CHECK: model.shard_recurrence %{{.*}} {delta, first_position = #dist.origin<cp * 6>}
func.func @shard(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate, %borders: tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, %from: !from) -> !value {
  %y = model.shard_recurrence %q, %k, %v, %d, %b, %borders, %from {delta, first_position = #dist.origin<cp * 6>} : (!key, !key, !value, !gate, !gate, tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, !from) -> !value
  return %y : !value
}
