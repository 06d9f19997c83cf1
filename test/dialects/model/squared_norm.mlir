// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// One tensor's part of the global gradient norm.

// Two ranks hold the tensor, so each counts half of it.
// CHECK-LABEL: func.func @squared_norm(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.squared_norm %[[X0]] {weight = 5.000000e-01 : f64} : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<f32>
func.func @squared_norm(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<f32> {
  %y = model.squared_norm %x0 {weight = 5.000000e-01 : f64} : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<f32>
  return %y : tensor<f32>
}
