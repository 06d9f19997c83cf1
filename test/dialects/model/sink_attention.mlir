// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// RUN: espalier-opt --canonicalize %s | FileCheck --check-prefix=PLAIN %s
// Attention with a score per head that has no key. Canonicalization leaves attention and element-wise ops.

// CHECK-LABEL: func.func @sink_attention(
// CHECK: model.sink_attention %{{.*}} {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64}
// PLAIN-LABEL: func.func @sink_attention(
// PLAIN: model.attention %{{.*}} {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64}
// PLAIN: %[[M:.*]] = model.sub %{{.*}}, %{{.*}}
// PLAIN: %[[S:.*]] = model.logistic %[[M]]
// PLAIN: model.mul %{{.*}}, %[[S]]
// PLAIN-NOT: sink_attention
// A score per head and group.
func.func @sink_attention(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %s: tensor<5x7xf32, #model.dims<kv_heads, group>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  %y:2 = model.sink_attention %q, %k, %v, %s {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<5x7xf32, #model.dims<kv_heads, group>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}
