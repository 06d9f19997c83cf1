// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of sink_attention.

// There is a sum per query.
func.func @sink_attention_c1_sums_without_groups(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %s: tensor<5x7xf32, #model.dims<kv_heads, group>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs out like q with the last dimension of v and log_sum_exp like q without its last dimension}}
  %y:2 = model.sink_attention %q, %k, %v, %s {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<5x7xf32, #model.dims<kv_heads, group>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// -----

// Each query head has a sink.
func.func @sink_attention_c2_sinks_of_key_heads(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %s: tensor<5xf32, #model.dims<kv_heads>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs sinks with q's dimensions of heads}}
  %y:2 = model.sink_attention %q, %k, %v, %s {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<5xf32, #model.dims<kv_heads>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}
