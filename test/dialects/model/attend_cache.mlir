// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Attention of new tokens over a cache.

// Query heads in groups, and a cache with more positions than tokens.
// CHECK-LABEL: func.func @attend_cache(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor{{.*}}%[[K:[a-z0-9]+]]: tensor{{.*}}%[[V:[a-z0-9]+]]: tensor{{.*}}%[[P:[a-z0-9]+]]: tensor{{.*}}%[[A:[a-z0-9]+]]: tensor{{.*}}%[[B:[a-z0-9]+]]: tensor
// CHECK: model.attend_cache %[[Q]], %[[K]], %[[V]], %[[P]], %[[A]], %[[B]] {scale = 5.000000e-01 : f64}
func.func @attend_cache(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// With the logarithms of the sums of exponentials.
// CHECK-LABEL: func.func @attend_cache_sums(
// CHECK: model.attend_cache
// CHECK-SAME: tensor<2x3x5x7xf32
func.func @attend_cache_sums(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>> {
  %y:4 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#3 : tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>
}
