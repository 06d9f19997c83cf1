// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Reductions: the result type gives the dimensions that remain.

// Reduces the middle dimension.
// CHECK-LABEL: func.func @reduce_sum(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.reduce_sum %[[X0]] : (tensor<2x3x4xf32, #model.dims<a, b, c>>) -> tensor<2x4xf32, #model.dims<a, c>>
func.func @reduce_sum(%x0: tensor<2x3x4xf32, #model.dims<a, b, c>>) -> tensor<2x4xf32, #model.dims<a, c>> {
  %y = model.reduce_sum %x0 : (tensor<2x3x4xf32, #model.dims<a, b, c>>) -> tensor<2x4xf32, #model.dims<a, c>>
  return %y : tensor<2x4xf32, #model.dims<a, c>>
}

// Reduces all dimensions.
// CHECK-LABEL: func.func @reduce_max(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.reduce_max %[[X0]] : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<f32>
func.func @reduce_max(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<f32> {
  %y = model.reduce_max %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<f32>
  return %y : tensor<f32>
}
