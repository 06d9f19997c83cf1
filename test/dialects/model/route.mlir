// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Chooses each token's expert and its slot there.

// CHECK-LABEL: func.func @route(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor
// CHECK: model.route %[[X0]] {capacity = 2 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>)
func.func @route(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>) {
  %ids, %slots = model.route %x0 {capacity = 2 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>)
  return %ids, %slots : tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>
}
