// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of shard_recurrence_grad.

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// The cotangent is no value.
func.func @shard_recurrence_grad_c1(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate, %g: !key, %borders: tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, %ends: tensor<2x4x2x3x4x6xf32, #model.dims<batch, seq, heads, group, key, value>>) -> (!key, !key, !value, !gate, !gate) {
  // expected-error @+1 {{needs cotangent and dv of the type of v}}
  %y:5 = model.shard_recurrence_grad %q, %k, %v, %d, %b, %g, %borders, %ends {delta, first_position = #dist.origin<cp * 6>} : (!key, !key, !value, !gate, !gate, !key, tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, tensor<2x4x2x3x4x6xf32, #model.dims<batch, seq, heads, group, key, value>>) -> (!key, !key, !value, !gate, !gate)
  return %y#0, %y#1, %y#2, %y#3, %y#4 : !key, !key, !value, !gate, !gate
}

// -----

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// The ends have columns of A.
func.func @shard_recurrence_grad_c2(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate, %g: !value, %borders: tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, %ends: tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>) -> (!key, !key, !value, !gate, !gate) {
  // expected-error @+1 {{needs gathered results of shard_states}}
  %y:5 = model.shard_recurrence_grad %q, %k, %v, %d, %b, %g, %borders, %ends {delta, first_position = #dist.origin<cp * 6>} : (!key, !key, !value, !gate, !gate, !value, tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>) -> (!key, !key, !value, !gate, !gate)
  return %y#0, %y#1, %y#2, %y#3, %y#4 : !key, !key, !value, !gate, !gate
}
