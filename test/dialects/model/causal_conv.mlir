// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Convolutions over the sequence.

// Channels of one dimension.
// CHECK-LABEL: func.func @channels(
// CHECK: model.causal_conv %{{.*}}, %{{.*}} : (tensor<2x5x6xf32
func.func @channels(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x4xf32, #model.dims<channels, taps>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>> {
  %y = model.causal_conv %x, %w : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x4xf32, #model.dims<channels, taps>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
  return %y : tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
}

// The derivative with respect to x, within documents.
// CHECK-LABEL: func.func @transposed(
// CHECK: model.causal_conv %{{.*}} {transposed} : (tensor<2x5x2x3xf32
func.func @transposed(%x: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>, %w: tensor<2x3x4xf32, #model.dims<heads, columns, taps>>, %from: tensor<2x5xi32, #model.dims<batch, seq>>) -> tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>> {
  %y = model.causal_conv %x, %w, %from {transposed} : (tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>, tensor<2x3x4xf32, #model.dims<heads, columns, taps>>, tensor<2x5xi32, #model.dims<batch, seq>>) -> tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>
  return %y : tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>
}
