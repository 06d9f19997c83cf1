// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Looks up rows of a table.

// The table is not sharded.
// CHECK-LABEL: func.func @embed(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.embed %[[X0]], %[[X1]] : (tensor<5x4xf32, #model.dims<vocab, hidden>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
func.func @embed(%x0: tensor<5x4xf32, #model.dims<vocab, hidden>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  %y = model.embed %x0, %x1 : (tensor<5x4xf32, #model.dims<vocab, hidden>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// This device has the rows from tp * 5 on.
// CHECK-LABEL: func.func @embed_part(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.embed %[[X0]], %[[X1]] {first_row = #dist.origin<tp * 5>} : (tensor<5x4xf32, #model.dims<vocab, hidden>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
func.func @embed_part(%x0: tensor<5x4xf32, #model.dims<vocab, hidden>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  %y = model.embed %x0, %x1 {first_row = #dist.origin<tp * 5>} : (tensor<5x4xf32, #model.dims<vocab, hidden>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}
