// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// The derivative of a convolution with respect to its weight.

// The gradient of a weight.
// CHECK-LABEL: func.func @channels(
// CHECK: model.causal_conv_grad %{{.*}}, %{{.*}} : (tensor<2x5x2x3xf32
func.func @channels(%x: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>, %g: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>) -> tensor<2x3x4xf32, #model.dims<heads, columns, taps>> {
  %y = model.causal_conv_grad %x, %g : (tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, columns>>) -> tensor<2x3x4xf32, #model.dims<heads, columns, taps>>
  return %y : tensor<2x3x4xf32, #model.dims<heads, columns, taps>>
}
