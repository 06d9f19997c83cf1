// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of shard_recurrence.

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// out is no value.
func.func @shard_recurrence_c1(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate, %borders: tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, %from: !from) -> !key {
  // expected-error @+1 {{needs out of the type of v}}
  %y = model.shard_recurrence %q, %k, %v, %d, %b, %borders, %from {delta, first_position = #dist.origin<cp * 6>} : (!key, !key, !value, !gate, !gate, tensor<2x4x2x3x4x10xf32, #model.dims<batch, seq, heads, group, key, state_columns>>, !from) -> !key
  return %y : !key
}

// -----

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// The borders are those of a diagonal A.
func.func @shard_recurrence_c2(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate, %borders: tensor<2x4x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>) -> !value {
  // expected-error @+1 {{needs gathered results of shard_states}}
  %y = model.shard_recurrence %q, %k, %v, %d, %b, %borders {delta, first_position = #dist.origin<cp * 6>} : (!key, !key, !value, !gate, !gate, tensor<2x4x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>) -> !value
  return %y : !value
}
