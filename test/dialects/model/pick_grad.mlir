// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Places the cotangent in the label's column.

// Rows are not sharded.
// CHECK-LABEL: func.func @pick_grad(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.pick_grad %[[X0]], %[[X1]], %[[X2]] : (tensor<3xi32, #model.dims<seq>>, tensor<3xf32, #model.dims<seq>>, tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
func.func @pick_grad(%x0: tensor<3xi32, #model.dims<seq>>, %x1: tensor<3xf32, #model.dims<seq>>, %x2: tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  %y = model.pick_grad %x0, %x1, %x2 : (tensor<3xi32, #model.dims<seq>>, tensor<3xf32, #model.dims<seq>>, tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}

// A shard of the columns, and one cotangent for all rows.
// CHECK-LABEL: func.func @pick_grad_part(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.pick_grad %[[X0]], %[[X1]], %[[X2]] {first_column = #dist.origin<tp * 5>} : (tensor<3xi32, #model.dims<seq>>, tensor<f32>, tensor<3x5xbf16, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
func.func @pick_grad_part(%x0: tensor<3xi32, #model.dims<seq>>, %x1: tensor<f32>, %x2: tensor<3x5xbf16, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  %y = model.pick_grad %x0, %x1, %x2 {first_column = #dist.origin<tp * 5>} : (tensor<3xi32, #model.dims<seq>>, tensor<f32>, tensor<3x5xbf16, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}
