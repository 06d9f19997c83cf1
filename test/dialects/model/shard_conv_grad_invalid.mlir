// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of shard_conv_grad.

// The cotangent has fewer positions.
func.func @shard_conv_grad_c1(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %g: tensor<2x5x5xf32, #model.dims<batch, seq, channels>>, %edges: tensor<2x12x5xf32, #model.dims<batch, seq, channels>>) -> tensor<5x4xf32, #model.dims<channels, taps>> {
  // expected-error @+1 {{needs x [batch, seq, channels..] and a cotangent with its dimensions}}
  %y = model.shard_conv_grad %x, %g, %edges {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<2x5x5xf32, #model.dims<batch, seq, channels>>, tensor<2x12x5xf32, #model.dims<batch, seq, channels>>) -> tensor<5x4xf32, #model.dims<channels, taps>>
  return %y : tensor<5x4xf32, #model.dims<channels, taps>>
}

// -----

// The edges have other channels.
func.func @shard_conv_grad_c2(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %g: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %edges: tensor<2x12x4xf32, #model.dims<batch, seq, channels>>) -> tensor<5x4xf32, #model.dims<channels, taps>> {
  // expected-error @+1 {{needs gathered results of shard_edges}}
  %y = model.shard_conv_grad %x, %g, %edges {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<2x12x4xf32, #model.dims<batch, seq, channels>>) -> tensor<5x4xf32, #model.dims<channels, taps>>
  return %y : tensor<5x4xf32, #model.dims<channels, taps>>
}
