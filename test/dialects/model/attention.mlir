// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Scaled dot-product attention.

// Query heads equal key heads in number.
// CHECK-LABEL: func.func @attention(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.attention %[[X0]], %[[X1]], %[[X2]] {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
func.func @attention(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>) {
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0, %y#1 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>
}

// Grouped-query attention, causal.
// CHECK-LABEL: func.func @attention_grouped(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.attention %[[X0]], %[[X1]], %[[X2]] {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
func.func @attention_grouped(%x0: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>) {
  %y:2 = model.attention %x0, %x1, %x2 {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#0, %y#1 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>
}

// A window and a soft cap.
// CHECK-LABEL: func.func @attention_window(
// CHECK: model.attention %{{.*}} {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64, soft_cap = 3.000000e+01 : f64, window = 2 : i64}
func.func @attention_window(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  %y:2 = model.attention %x0, %x1, %x2 {causal, id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64, soft_cap = 30.0 : f64, window = 2 : i64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// A shard of batch and heads, with dropout.
// CHECK-LABEL: func.func @attention_part(
// CHECK-SAME: %[[X0:[a-z0-9]+]]: tensor{{.*}}%[[X1:[a-z0-9]+]]: tensor{{.*}}%[[X2:[a-z0-9]+]]: tensor
// CHECK: model.attention %[[X0]], %[[X1]], %[[X2]] {causal, id = 1 : i64, origins = [#dist.origin<dp * 2>, unit, #dist.origin<tp * 5>, unit, unit], rate = 1.000000e-01 : f64, scale = 5.000000e-01 : f64, unsplit = array<i64: 4, 3, 10, 7, 4>} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
func.func @attention_part(%x0: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>) {
  %y:2 = model.attention %x0, %x1, %x2 {causal, id = 1 : i64, origins = [#dist.origin<dp * 2>, unit, #dist.origin<tp * 5>, unit, unit], rate = 1.000000e-01 : f64, scale = 5.000000e-01 : f64, unsplit = array<i64: 4, 3, 10, 7, 4>} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#0, %y#1 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>
}

// -----

// The second half of the queries of a sharded sequence.
// CHECK-LABEL: func.func @attention_queries(
// CHECK: model.attention %{{.*}} {causal, id = 1 : i64, origins = [unit, #dist.origin<cp * 3>, unit, unit], rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64, unsplit = array<i64: 2, 6, 5, 4>}
func.func @attention_queries(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64, causal, origins = [unit, #dist.origin<cp * 3>, unit, unit], unsplit = array<i64: 2, 6, 5, 4>} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// Queries attend to keys of their own document.
// CHECK-LABEL: func.func @attention_documents(
// CHECK: model.attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64}
func.func @attention_documents(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x3: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  %y:2 = model.attention %x0, %x1, %x2, %x3 {id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64, causal} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// CHECK-LABEL: func.func @values_of_another_length(
// CHECK: model.attention {{.*}} -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, value_dim>>, tensor<2x3x5xf32, {{.*}}>)
func.func @values_of_another_length(%q: tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, %k: tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, value_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, value_dim>> {
  %y:2 = model.attention %q, %k, %v {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, value_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, value_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, value_dim>>
}
