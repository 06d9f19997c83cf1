// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// The maxima of key-value heads, with and without groups of query heads.

// CHECK-LABEL: func.func @keep_maxima(
// CHECK: %{{.*}}, %{{.*}}, %[[LARGEST:.*]] = model.attention
// CHECK: model.keep_maxima %{{.*}}, %[[LARGEST]] : (tensor<5xf32, #model.dims<kv_heads>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>) -> tensor<5xf32, #model.dims<kv_heads>>
func.func @keep_maxima(%m: tensor<5xf32, #model.dims<kv_heads>>, %q: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> tensor<5xf32, #model.dims<kv_heads>> {
  %y:3 = model.attention %q, %q, %q {causal, id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  %z = model.keep_maxima %m, %y#2 : (tensor<5xf32, #model.dims<kv_heads>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>) -> tensor<5xf32, #model.dims<kv_heads>>
  return %z : tensor<5xf32, #model.dims<kv_heads>>
}

// CHECK-LABEL: func.func @keep_maxima_groups(
// CHECK: model.keep_maxima
func.func @keep_maxima_groups(%m: tensor<5xf32, #model.dims<kv_heads>>, %x: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, group>>) -> tensor<5xf32, #model.dims<kv_heads>> {
  %z = model.keep_maxima %m, %x : (tensor<5xf32, #model.dims<kv_heads>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, group>>) -> tensor<5xf32, #model.dims<kv_heads>>
  return %z : tensor<5xf32, #model.dims<kv_heads>>
}
