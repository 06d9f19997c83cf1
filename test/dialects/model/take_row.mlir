// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Takes one position of each sequence.

// CHECK-LABEL: func.func @take_row(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor{{.*}}%[[R:[a-z0-9]+]]: tensor
// CHECK: model.take_row %[[X]], %[[R]] : (tensor<2x5x4xf32, {{.*}}>, tensor<2xi32, {{.*}}>) -> tensor<2x1x4xf32, {{.*}}>
func.func @take_row(%x: tensor<2x5x4xf32, #model.dims<batch, seq, hidden>>, %r: tensor<2xi32, #model.dims<batch>>) -> tensor<2x1x4xf32, #model.dims<batch, seq, hidden>> {
  %y = model.take_row %x, %r : (tensor<2x5x4xf32, #model.dims<batch, seq, hidden>>, tensor<2xi32, #model.dims<batch>>) -> tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
}
