// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Matrix products over named dimensions.

// A linear layer.
// CHECK-LABEL: func.func @contract(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.contract %[[X0]], %[[X1]] : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, ffn>>
func.func @contract(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, %x1: tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, ffn>> {
  %y = model.contract %x0, %x1 : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, ffn>>
  return %y : tensor<2x3x5xf32, #model.dims<batch, seq, ffn>>
}

// A dimension in both operands and the result is a batch dimension; the result may be transposed.
// CHECK-LABEL: func.func @contract_batched(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.contract %[[X0]], %[[X1]] : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<2x4x5xf32, #model.dims<batch, hidden, ffn>>) -> tensor<2x5x3xf32, #model.dims<batch, ffn, seq>>
func.func @contract_batched(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, %x1: tensor<2x4x5xf32, #model.dims<batch, hidden, ffn>>) -> tensor<2x5x3xf32, #model.dims<batch, ffn, seq>> {
  %y = model.contract %x0, %x1 : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<2x4x5xf32, #model.dims<batch, hidden, ffn>>) -> tensor<2x5x3xf32, #model.dims<batch, ffn, seq>>
  return %y : tensor<2x5x3xf32, #model.dims<batch, ffn, seq>>
}

// Two dimensions are contracted.
// CHECK-LABEL: func.func @contract_two(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.contract %[[X0]], %[[X1]] : (tensor<3x2x6xf32, #model.dims<seq, heads, head_dim>>, tensor<2x6x4xf32, #model.dims<heads, head_dim, hidden>>) -> tensor<3x4xf32, #model.dims<seq, hidden>>
func.func @contract_two(%x0: tensor<3x2x6xf32, #model.dims<seq, heads, head_dim>>, %x1: tensor<2x6x4xf32, #model.dims<heads, head_dim, hidden>>) -> tensor<3x4xf32, #model.dims<seq, hidden>> {
  %y = model.contract %x0, %x1 : (tensor<3x2x6xf32, #model.dims<seq, heads, head_dim>>, tensor<2x6x4xf32, #model.dims<heads, head_dim, hidden>>) -> tensor<3x4xf32, #model.dims<seq, hidden>>
  return %y : tensor<3x4xf32, #model.dims<seq, hidden>>
}
