// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Separates forward from backward.

// The gradient has the dimensions of the stream.
// CHECK-LABEL: func.func @cotangent(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.cotangent %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @cotangent(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.cotangent %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
