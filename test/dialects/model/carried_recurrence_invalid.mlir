// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of carried_recurrence.

// beta lacks the group.
func.func @carried_recurrence_c1(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2xf32, #model.dims<batch, seq, heads>>, %b: tensor<2x5x2xf32, #model.dims<batch, seq, heads>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %s: tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs f32 beta like v without its last dimension}}
  %y:2 = model.carried_recurrence %q, %k, %v, %d, %b, %p, %s {delta} : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2xf32, #model.dims<batch, seq, heads>>, tensor<2x5x2xf32, #model.dims<batch, seq, heads>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> (tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>)
  return %y#0 : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// -----

// Positions of the batch.
func.func @carried_recurrence_c2(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %p: tensor<2xi32, #model.dims<batch>>, %s: tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs i32 positions with the first two dimensions}}
  %y:2 = model.carried_recurrence %q, %k, %v, %d, %b, %p, %s {delta} : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2xi32, #model.dims<batch>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> (tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>)
  return %y#0 : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// -----

// A state in half precision.
func.func @carried_recurrence_c3(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %s: tensor<2x2x3x4x6xbf16, #model.dims<batch, heads, group, key, value>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs a carried value and its successor of type}}
  %y:2 = model.carried_recurrence %q, %k, %v, %d, %b, %p, %s {delta} : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x2x3x4x6xbf16, #model.dims<batch, heads, group, key, value>>) -> (tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x2x3x4x6xbf16, #model.dims<batch, heads, group, key, value>>)
  return %y#0 : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// -----

// Another state after the tokens.
func.func @carried_recurrence_c3_other(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %s: tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs a carried value and its successor of type}}
  %y:2 = model.carried_recurrence %q, %k, %v, %d, %b, %p, %s {delta} : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> (tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x2x3x4x7xf32, #model.dims<batch, heads, group, key, value>>)
  return %y#0 : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// -----

// out is no value.
func.func @carried_recurrence_c4(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %s: tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> tensor<2x5x2x3x7xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs out of the type of v}}
  %y:2 = model.carried_recurrence %q, %k, %v, %d, %b, %p, %s {delta} : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> (tensor<2x5x2x3x7xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>)
  return %y#0 : tensor<2x5x2x3x7xf32, #model.dims<batch, seq, heads, group, value>>
}
