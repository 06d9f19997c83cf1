// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of shard_conv.

// There is one tap.
func.func @shard_conv_c1(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %w: tensor<5x1xf32, #model.dims<channels, taps>>, %edges: tensor<2x12x5xf32, #model.dims<batch, seq, channels>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs a weight with the channels of x, then 2 to 8 taps}}
  %y = model.shard_conv %x, %w, %edges {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<5x1xf32, #model.dims<channels, taps>>, tensor<2x12x5xf32, #model.dims<batch, seq, channels>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
}

// -----

// The edges have other channels.
func.func @shard_conv_c2(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %w: tensor<5x4xf32, #model.dims<channels, taps>>, %edges: tensor<2x12x4xf32, #model.dims<batch, seq, channels>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs gathered results of shard_edges}}
  %y = model.shard_conv %x, %w, %edges {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<5x4xf32, #model.dims<channels, taps>>, tensor<2x12x4xf32, #model.dims<batch, seq, channels>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
}

// -----

// The first positions of visible_from are missing.
func.func @shard_conv_c2_limits(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %w: tensor<5x4xf32, #model.dims<channels, taps>>, %edges: tensor<2x12x5xf32, #model.dims<batch, seq, channels>>, %from: tensor<2x6xi32, #model.dims<batch, seq>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs visible_from, and its first positions if it is transposed}}
  %y = model.shard_conv %x, %w, %edges, %from {transposed, first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<5x4xf32, #model.dims<channels, taps>>, tensor<2x12x5xf32, #model.dims<batch, seq, channels>>, tensor<2x6xi32, #model.dims<batch, seq>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
}
