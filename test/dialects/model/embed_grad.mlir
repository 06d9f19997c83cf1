// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Sums rows by id.

// The table is not sharded.
// CHECK-LABEL: func.func @embed_grad(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.embed_grad %[[X0]], %[[X1]] : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>>
func.func @embed_grad(%x0: tensor<2x3xi32, #model.dims<batch, seq>>, %x1: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>> {
  %y = model.embed_grad %x0, %x1 : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>>
  return %y : tensor<5x4xf32, #model.dims<vocab, hidden>>
}

// Only rows of this device are summed.
// CHECK-LABEL: func.func @embed_grad_part(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.embed_grad %[[X0]], %[[X1]] {first_row = #dist.origin<tp * 5>} : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>>
func.func @embed_grad_part(%x0: tensor<2x3xi32, #model.dims<batch, seq>>, %x1: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>> {
  %y = model.embed_grad %x0, %x1 {first_row = #dist.origin<tp * 5>} : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>>
  return %y : tensor<5x4xf32, #model.dims<vocab, hidden>>
}
