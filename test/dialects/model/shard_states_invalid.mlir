// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of shard_states.

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// visible_from has one number for each sample.
func.func @shard_states_c1(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate, %from: tensor<2xi32, #model.dims<batch>>) -> tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>> {
  // expected-error @+1 {{needs i32 visible_from with the first two dimensions of its sequences}}
  %y = model.shard_states %q, %k, %v, %d, %b, %from {first_position = #dist.origin<cp * 6>, whole = 24 : i64} : (!key, !key, !value, !gate, !gate, tensor<2xi32, #model.dims<batch>>) -> tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
  return %y : tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
}

// -----

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// A of the delta rule has as many columns as k.
func.func @shard_states_c2(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate) -> tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>> {
  // expected-error @+1 {{needs a result [batch, runs, heads, group.., key_dim, columns]}}
  %y = model.shard_states %q, %k, %v, %d, %b {delta, first_position = #dist.origin<cp * 6>, whole = 24 : i64} : (!key, !key, !value, !gate, !gate) -> tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
  return %y : tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
}

// -----

!key = tensor<2x6x2x4xf32, #model.dims<batch, seq, heads, key>>
!value = tensor<2x6x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
!gate = tensor<2x6x2x3xf32, #model.dims<batch, seq, heads, group>>
!from = tensor<2x6xi32, #model.dims<batch, seq>>

// The sequence is shorter than its shard.
func.func @shard_states_c3(%q: !key, %k: !key, %v: !value, %d: !gate, %b: !gate) -> tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>> {
  // expected-error @+1 {{needs a sequence at least as long as its shard}}
  %y = model.shard_states %q, %k, %v, %d, %b {first_position = #dist.origin<cp * 6>, whole = 5 : i64} : (!key, !key, !value, !gate, !gate) -> tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
  return %y : tensor<2x1x2x3x4x7xf32, #model.dims<batch, seq, heads, group, key, state_columns>>
}
