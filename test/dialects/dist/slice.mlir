// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Each device takes its shard.

// Works along the second dimension.
// CHECK-LABEL: func.func @slice(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: dist.slice %[[X0]] over ["tp"] dim 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
func.func @slice(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  %y = dist.slice %x0 over ["tp"] dim 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
