// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Reads a flat tensor as a matrix.

// CHECK-LABEL: func.func @view(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor
// CHECK: model.view %[[X]] : (tensor<12xf32, {{.*}}>) -> tensor<3x4xf32, {{.*}}>
func.func @view(%x: tensor<12xf32, #model.dims<element>>) -> tensor<3x4xf32, #model.dims<rows, columns>> {
  %y = model.view %x : (tensor<12xf32, #model.dims<element>>) -> tensor<3x4xf32, #model.dims<rows, columns>>
  return %y : tensor<3x4xf32, #model.dims<rows, columns>>
}
