// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// The derivative of a recurrence on a shard of a sequence.

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// CHECK-LABEL: func.func @shard(
// CHECK: model.shard_recurrence_grad %{{.*}} {delta, first_position = #dist.origin<cp * 6>}
func.func @shard(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate, %g: !value, %borders: tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, %ends: tensor<2x4x2x3x4x6xf32, #model.dims<batch, seq, heads, group, key, value>>) -> (!key, !key, !value, !gate, !gate) {
  %y:5 = model.shard_recurrence_grad %q, %k, %v, %d, %b, %g, %borders, %ends {delta, first_position = #dist.origin<cp * 6>} : (!key, !key, !value, !gate, !gate, !value, tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, tensor<2x4x2x3x4x6xf32, #model.dims<batch, seq, heads, group, key, value>>) -> (!key, !key, !value, !gate, !gate)
  return %y#0, %y#1, %y#2, %y#3, %y#4 : !key, !key, !value, !gate, !gate
}
