// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Splits one dimension and gathers another.

// CHECK-LABEL: func.func @all_to_all(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: dist.all_to_all %[[X0]] over ["ep"] split 1 concat 0 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>>
func.func @all_to_all(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>> {
  %y = dist.all_to_all %x0 over ["ep"] split 1 concat 0 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>>
  return %y : tensor<6x2xf32, #model.dims<a, b>>
}
