// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Convolutions over a shard of a sequence.

// CHECK-LABEL: func.func @forward(
// CHECK: model.shard_conv %{{.*}} {first_position = #dist.origin<cp * 6>}
func.func @forward(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %w: tensor<5x4xf32, #model.dims<channels, taps>>, %edges: tensor<2x12x5xf32, #model.dims<batch, seq, channels>>, %from: tensor<2x6xi32, #model.dims<batch, seq>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>> {
  %y = model.shard_conv %x, %w, %edges, %from {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<5x4xf32, #model.dims<channels, taps>>, tensor<2x12x5xf32, #model.dims<batch, seq, channels>>, tensor<2x6xi32, #model.dims<batch, seq>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
}

// The first positions of all shards, within documents.
// CHECK-LABEL: func.func @transposed(
// CHECK: model.shard_conv %{{.*}} {first_position = #dist.origin<cp * 6>, transposed}
func.func @transposed(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, %w: tensor<5x4xf32, #model.dims<channels, taps>>, %edges: tensor<2x12x5xf32, #model.dims<batch, seq, channels>>, %from: tensor<2x6xi32, #model.dims<batch, seq>>, %limits: tensor<2x12xi32, #model.dims<batch, seq>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>> {
  %y = model.shard_conv %x, %w, %edges, %from, %limits {transposed, first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>, tensor<5x4xf32, #model.dims<channels, taps>>, tensor<2x12x5xf32, #model.dims<batch, seq, channels>>, tensor<2x6xi32, #model.dims<batch, seq>>, tensor<2x12xi32, #model.dims<batch, seq>>) -> tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x6x5xf32, #model.dims<batch, seq, channels>>
}
