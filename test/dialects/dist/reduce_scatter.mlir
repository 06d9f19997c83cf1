// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Each device gets its shard of a sum.

// Works along the second dimension.
// CHECK-LABEL: func.func @reduce_scatter(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: dist.reduce_scatter %[[X0]] over ["tp"] dim 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @reduce_scatter(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = dist.reduce_scatter %x0 over ["tp"] dim 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
