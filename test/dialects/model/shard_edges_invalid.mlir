// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of shard_edges.

// The result has more positions than x.
func.func @shard_edges_c1(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>) -> tensor<2x7x5xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs a result like x with at most as many positions}}
  %y = model.shard_edges %x {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>) -> tensor<2x7x5xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x7x5xf32, #model.dims<batch, seq, channels>>
}

// -----

// The result has other channels.
func.func @shard_edges_c1_channels(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>) -> tensor<2x2x4xf32, #model.dims<batch, seq, channels>> {
  // expected-error @+1 {{needs a result like x with at most as many positions}}
  %y = model.shard_edges %x {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>) -> tensor<2x2x4xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x2x4xf32, #model.dims<batch, seq, channels>>
}
