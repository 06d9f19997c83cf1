// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of causal_conv.

// The result has fewer positions.
func.func @causal_conv_c1(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x4xf32, #model.dims<channels, taps>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs x [batch, seq, channels..] and a result with its dimensions}}
  %y = model.causal_conv %x, %w : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x4xf32, #model.dims<channels, taps>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x4x6xf32, #model.dims<batch, seq, channels>>
}

// -----

// There are nine taps.
func.func @causal_conv_c2_taps(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x9xf32, #model.dims<channels, taps>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs a weight with the channels of x, then 2 to 8 taps}}
  %y = model.causal_conv %x, %w : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x9xf32, #model.dims<channels, taps>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
}

// -----

// The weight has other channels.
func.func @causal_conv_c2_channels(%x: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>, %w: tensor<3x2x4xf32, #model.dims<columns, heads, taps>>) -> tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>> {
  // expected-error @+1 {{needs a weight with the channels of x, then 2 to 8 taps}}
  %y = model.causal_conv %x, %w : (tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>, tensor<3x2x4xf32, #model.dims<columns, heads, taps>>) -> tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>
  return %y : tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>
}

// -----

// visible_from has numbers.
func.func @causal_conv_c3(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x4xf32, #model.dims<channels, taps>>, %from: tensor<2x5xf32, #model.dims<batch, seq>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs i32 visible_from with the first two dimensions of its sequences}}
  %y = model.causal_conv %x, %w, %from : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x4xf32, #model.dims<channels, taps>>, tensor<2x5xf32, #model.dims<batch, seq>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
}
