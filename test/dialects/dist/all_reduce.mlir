// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Sums and maxima over a group.

// An all-reduce that sums.
// CHECK-LABEL: func.func @all_reduce(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: dist.all_reduce %[[X0]] over ["tp"] "sum" : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @all_reduce(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = dist.all_reduce %x0 over ["tp"] "sum" : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// An all-reduce over two axes that takes the maximum.
// CHECK-LABEL: func.func @all_reduce_max(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: dist.all_reduce %[[X0]] over ["dp", "tp"] "max" : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @all_reduce_max(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = dist.all_reduce %x0 over ["dp", "tp"] "max" : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
