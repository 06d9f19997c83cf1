// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Positions at the borders of shards.

// CHECK-LABEL: func.func @last(
// CHECK: model.shard_edges %{{.*}} {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32
func.func @last(%x: tensor<2x6x5xf32, #model.dims<batch, seq, channels>>) -> tensor<2x2x5xf32, #model.dims<batch, seq, channels>> {
  %y = model.shard_edges %x {first_position = #dist.origin<cp * 6>} : (tensor<2x6x5xf32, #model.dims<batch, seq, channels>>) -> tensor<2x2x5xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x2x5xf32, #model.dims<batch, seq, channels>>
}

// Numbers without channels.
// CHECK-LABEL: func.func @first(
// CHECK: model.shard_edges %{{.*}} {first, first_position
func.func @first(%x: tensor<2x6xi32, #model.dims<batch, seq>>) -> tensor<2x3xi32, #model.dims<batch, seq>> {
  %y = model.shard_edges %x {first, first_position = #dist.origin<cp * 6>} : (tensor<2x6xi32, #model.dims<batch, seq>>) -> tensor<2x3xi32, #model.dims<batch, seq>>
  return %y : tensor<2x3xi32, #model.dims<batch, seq>>
}
