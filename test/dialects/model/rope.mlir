// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Rotary position embedding.

// The forward rotation.
// CHECK-LABEL: func.func @rope(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.rope %[[X0]], %[[X1]] {theta = 1.000000e+04 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
func.func @rope(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  %y = model.rope %x0, %x1 {theta = 1.000000e+04 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// All options, llama3's scaling.
// CHECK-LABEL: func.func @rope_options(
// CHECK: model.rope %{{.*}} {amplitude = 1.100000e+00 : f64, factor = 8.000000e+00 : f64, fast = 4.000000e+00 : f64, interleaved, original_context = 8.192000e+03 : f64, rotary = 2 : i64, slow = 1.000000e+00 : f64, theta = 1.000000e+04 : f64}
func.func @rope_options(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64, rotary = 2 : i64, interleaved, factor = 8.0 : f64, slow = 1.0 : f64, fast = 4.0 : f64, original_context = 8192.0 : f64, amplitude = 1.1 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// The inverse rotation of backward.
// CHECK-LABEL: func.func @rope_inverse(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor
// CHECK: model.rope %[[X0]], %[[X1]] {inverse, theta = 1.000000e+04 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
func.func @rope_inverse(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  %y = model.rope %x0, %x1 {inverse, theta = 1.000000e+04 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}
