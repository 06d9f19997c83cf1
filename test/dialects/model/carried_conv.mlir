// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// A convolution that continues from the last inputs.

// CHECK-LABEL: func.func @carried_conv(
// CHECK: model.carried_conv %{{.*}} : (tensor<2x5x6xf32
func.func @carried_conv(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %w: tensor<6x3xf32, #model.dims<channels, taps>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %h: tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>) -> tensor<2x5x6xf32, #model.dims<batch, seq, channels>> {
  %y:2 = model.carried_conv %x, %w, %p, %h : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<6x3xf32, #model.dims<channels, taps>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>) -> (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2x2x6xf32, #model.dims<batch, earlier, channels>>)
  return %y#0 : tensor<2x5x6xf32, #model.dims<batch, seq, channels>>
}
