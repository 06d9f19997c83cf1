// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Concatenates shards.

// Works along the second dimension.
// CHECK-LABEL: func.func @all_gather(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: dist.all_gather %[[X0]] over ["tp"] dim 1 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x6xf32, #model.dims<a, b>>
func.func @all_gather(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x6xf32, #model.dims<a, b>> {
  %y = dist.all_gather %x0 over ["tp"] dim 1 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x6xf32, #model.dims<a, b>>
  return %y : tensor<2x6xf32, #model.dims<a, b>>
}
