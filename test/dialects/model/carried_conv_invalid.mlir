// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of carried_conv.

// The result has other channels.
func.func @carried_conv_c1(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x3xf32, #model.dims<channels, taps>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %h: tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>) -> tensor<2x5x7xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs x [batch, seq, channels..] and a result with its dimensions}}
  %y:2 = model.carried_conv %x, %w, %p, %h : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x3xf32, #model.dims<channels, taps>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>) -> (tensor<2x5x7xf32, #model.dims<batch, seq, channels>>, tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>)
  return %y#0 : tensor<2x5x7xf32, #model.dims<batch, seq, channels>>
}

// -----

// One tap.
func.func @carried_conv_c2(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x1xf32, #model.dims<channels, taps>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %h: tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs a weight with the channels of x, then 2 to 8 taps}}
  %y:2 = model.carried_conv %x, %w, %p, %h : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x1xf32, #model.dims<channels, taps>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>) -> (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>)
  return %y#0 : tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
}

// -----

// Positions as numbers.
func.func @carried_conv_c3(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x3xf32, #model.dims<channels, taps>>, %p: tensor<2x5xf32, #model.dims<batch, seq>>, %h: tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs i32 positions with the first two dimensions}}
  %y:2 = model.carried_conv %x, %w, %p, %h : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x3xf32, #model.dims<channels, taps>>, tensor<2x5xf32, #model.dims<batch, seq>>, tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>) -> (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>)
  return %y#0 : tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
}

// -----

// One earlier input for three taps.
func.func @carried_conv_c4(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x3xf32, #model.dims<channels, taps>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %h: tensor<2x1x6xf32, #model.dims<batch, earlier, channels>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs a carried value and its successor of type}}
  %y:2 = model.carried_conv %x, %w, %p, %h : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x3xf32, #model.dims<channels, taps>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x1x6xf32, #model.dims<batch, earlier, channels>>) -> (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2x1x6xf32, #model.dims<batch, earlier, channels>>)
  return %y#0 : tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
}
