// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// The derivative of a convolution over a shard of a sequence.

// CHECK-LABEL: func.func @shard(
// CHECK: model.shard_conv_grad %{{.*}} {first_position = #dist.origin<cp * 6>}
func.func @shard(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %g: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %edges: tensor<2x12x5xf32, #model.dims<batch, seq, channels>>) -> tensor<5x4xf32, #model.dims<channels, taps>> {
  %y = model.shard_conv_grad %x, %g, %edges {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<2x12x5xf32, #model.dims<batch, seq, channels>>) -> tensor<5x4xf32, #model.dims<channels, taps>>
  return %y : tensor<5x4xf32, #model.dims<channels, taps>>
}
