// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Dropout on a global tensor and on a shard.

// On global shapes.
// CHECK-LABEL: func.func @dropout(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.dropout %[[X0]] {id = 3 : i64, rate = 1.000000e-01 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
func.func @dropout(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  %y = model.dropout %x0 {id = 3 : i64, rate = 1.000000e-01 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// A shard has its origin in the unsharded tensor.
// CHECK-LABEL: func.func @dropout_part(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.dropout %[[X0]] {id = 3 : i64, origins = [#dist.origin<dp * 2>, unit, #dist.origin<tp * 4>], rate = 1.000000e-01 : f64, unsplit = array<i64: 4, 3, 8>} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
func.func @dropout_part(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  %y = model.dropout %x0 {id = 3 : i64, origins = [#dist.origin<dp * 2>, unit, #dist.origin<tp * 4>], rate = 1.000000e-01 : f64, unsplit = array<i64: 4, 3, 8>} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}
