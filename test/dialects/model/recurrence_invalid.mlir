// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of recurrence.

// q and k differ.
func.func @recurrence_c1(%q: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs q and k of one type [batch, seq, heads, key_dim]}}
  %y = model.recurrence %q, %k, %v, %d, %b : (tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
  return %y : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// -----

// The last dimension of v is that of k.
func.func @recurrence_c2_last(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>> {
  // expected-error @+1 {{needs v with the dimensions of k, but at most a group before the last and another last one}}
  %y = model.recurrence %q, %k, %v, %d, %b : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>>
  return %y : tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>>
}

// -----

// v has other heads.
func.func @recurrence_c2_heads(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, value>> {
  // expected-error @+1 {{needs v with the dimensions of k, but at most a group before the last and another last one}}
  %y = model.recurrence %q, %k, %v, %d, %b : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, value>>
  return %y : tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, value>>
}

// -----

// beta lacks the group.
func.func @recurrence_c3_beta(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2xf32, #model.dims<batch, seq, heads>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs f32 beta like v without its last dimension}}
  %y = model.recurrence %q, %k, %v, %d, %b : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2xf32, #model.dims<batch, seq, heads>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
  return %y : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// -----

// The decay has half precision.
func.func @recurrence_c3_decay(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xbf16, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs f32 beta like v without its last dimension}}
  %y = model.recurrence %q, %k, %v, %d, %b : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xbf16, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
  return %y : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// -----

// visible_from has heads.
func.func @recurrence_c4(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %from: tensor<2x5x2xi32, #model.dims<batch, seq, heads>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  // expected-error @+1 {{needs i32 visible_from with the first two dimensions of its sequences}}
  %y = model.recurrence %q, %k, %v, %d, %b, %from : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2xi32, #model.dims<batch, seq, heads>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
  return %y : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// -----

// out is no value.
func.func @recurrence_c5(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>> {
  // expected-error @+1 {{needs out of the type of v}}
  %y = model.recurrence %q, %k, %v, %d, %b : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>>
  return %y : tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>>
}
