// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Picks one element of each row.

// Rows are not sharded.
// CHECK-LABEL: func.func @pick(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.pick %[[X0]], %[[X1]] : (tensor<3x5xf32, #model.dims<seq, vocab>>, tensor<3xi32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>>
func.func @pick(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>, %x1: tensor<3xi32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>> {
  %y = model.pick %x0, %x1 : (tensor<3x5xf32, #model.dims<seq, vocab>>, tensor<3xi32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>>
  return %y : tensor<3xf32, #model.dims<seq>>
}

// This device has the columns from tp * 5 on.
// CHECK-LABEL: func.func @pick_part(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.pick %[[X0]], %[[X1]] {first_column = #dist.origin<tp * 5>} : (tensor<3x5xf32, #model.dims<seq, vocab>>, tensor<3xi32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>>
func.func @pick_part(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>, %x1: tensor<3xi32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>> {
  %y = model.pick %x0, %x1 {first_column = #dist.origin<tp * 5>} : (tensor<3x5xf32, #model.dims<seq, vocab>>, tensor<3xi32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>>
  return %y : tensor<3xf32, #model.dims<seq>>
}
