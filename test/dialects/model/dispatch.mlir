// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Moves rows of tokens to the slots of experts.

// Rows of tokens have no choice dimension.
// CHECK-LABEL: func.func @dispatch(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.dispatch %[[X0]], %[[X1]], %[[X2]] : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
func.func @dispatch(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>> {
  %y = model.dispatch %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
  return %y : tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
}

// There is one row per choice.
// CHECK-LABEL: func.func @dispatch_choices(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.dispatch %[[X0]], %[[X1]], %[[X2]] : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4x5xf32, #model.dims<choice, batch, seq, hidden>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
func.func @dispatch_choices(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<2x3x4x5xf32, #model.dims<choice, batch, seq, hidden>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>> {
  %y = model.dispatch %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4x5xf32, #model.dims<choice, batch, seq, hidden>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
  return %y : tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
}

// With weights.
// CHECK-LABEL: func.func @dispatch_weighted(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor{{.*}}%[[X3:[a-z0-9]+]]: tensor
// CHECK: model.dispatch %[[X0]], %[[X1]], %[[X2]], %[[X3]] : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>, tensor<2x3x4xf32, #model.dims<choice, batch, seq>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
func.func @dispatch_weighted(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>, %x3: tensor<2x3x4xf32, #model.dims<choice, batch, seq>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>> {
  %y = model.dispatch %x0, %x1, %x2, %x3 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>, tensor<2x3x4xf32, #model.dims<choice, batch, seq>>) -> tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
  return %y : tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>
}
