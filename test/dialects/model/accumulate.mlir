// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Accumulates gradients.

// The accumulator is f32 for any type of x.
// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.accumulate %[[X0]], %[[X1]] : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xbf16, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @accumulate(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<2x3xbf16, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.accumulate %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xbf16, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// With `always`, also adds in the first micro-batch.
// CHECK-LABEL: func.func @accumulate_always(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.accumulate %[[X0]], %[[X1]] {always} : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @accumulate_always(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = model.accumulate %x0, %x1 {always} : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
