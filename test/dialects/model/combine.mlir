// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Moves rows from the slots of experts to tokens.

// Rows of tokens have no choice dimension.
// CHECK-LABEL: func.func @combine(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.combine %[[X0]], %[[X1]], %[[X2]] : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
func.func @combine(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>> {
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
}

// There is one row per choice.
// CHECK-LABEL: func.func @combine_choices(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.combine %[[X0]], %[[X1]], %[[X2]] : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<2x3x4x5xf32, #model.dims<choice, batch, seq, hidden>>
func.func @combine_choices(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<2x3x4x5xf32, #model.dims<choice, batch, seq, hidden>> {
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<2x3x4x5xf32, #model.dims<choice, batch, seq, hidden>>
  return %y : tensor<2x3x4x5xf32, #model.dims<choice, batch, seq, hidden>>
}

// With weights.
// CHECK-LABEL: func.func @combine_weighted(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor{{.*}}%[[X3:[a-z0-9]+]]: tensor
// CHECK: model.combine %[[X0]], %[[X1]], %[[X2]], %[[X3]] : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>, tensor<2x3x4xf32, #model.dims<choice, batch, seq>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
func.func @combine_weighted(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>, %x3: tensor<2x3x4xf32, #model.dims<choice, batch, seq>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>> {
  %y = model.combine %x0, %x1, %x2, %x3 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>, tensor<2x3x4xf32, #model.dims<choice, batch, seq>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
}
