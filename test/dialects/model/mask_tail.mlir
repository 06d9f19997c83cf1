// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Masks the padding of a vocabulary.

// Rows are not sharded.
// CHECK-LABEL: func.func @mask_tail(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.mask_tail %[[X0]] {fill = -1.000000e+30 : f64, valid = 4 : i64} : (tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
func.func @mask_tail(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  %y = model.mask_tail %x0 {fill = -1.000000e+30 : f64, valid = 4 : i64} : (tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}

// A shard of the columns.
// CHECK-LABEL: func.func @mask_tail_part(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.mask_tail %[[X0]] {fill = 0.000000e+00 : f64, first_column = #dist.origin<tp * 5>, valid = 9 : i64} : (tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
func.func @mask_tail_part(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  %y = model.mask_tail %x0 {fill = 0.000000e+00 : f64, first_column = #dist.origin<tp * 5>, valid = 9 : i64} : (tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}
