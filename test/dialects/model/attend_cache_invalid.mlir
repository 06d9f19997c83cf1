// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of attend_cache.

// k has no head dimension.
func.func @attend_cache_c1_k_of_rank_3(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x4xf32, #model.dims<batch, seq, head_dim>>, %v: tensor<2x3x4xf32, #model.dims<batch, seq, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs k [batch, seq, heads, head_dim] and v of one type}}
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x4xf32, #model.dims<batch, seq, head_dim>>, tensor<2x3x4xf32, #model.dims<batch, seq, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// -----

// out lacks the group.
func.func @attend_cache_c2_out_of_one_head(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs out like q}}
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// positions has one position per sequence instead of one per token.
func.func @attend_cache_c3_positions_of_the_batch(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2xi32, #model.dims<batch>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs i32 positions with the first two dimensions of k}}
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2xi32, #model.dims<batch>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// -----

// Positions are not integers.
func.func @attend_cache_c3_positions_as_numbers(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xf32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs i32 positions with the first two dimensions of k}}
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xf32, #model.dims<batch, seq>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// -----

// The cache has k's order of dimensions.
func.func @attend_cache_c4_cache_like_k(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x6x5x4xf32, #model.dims<batch, context, kv_heads, head_dim>>, %b: tensor<2x6x5x4xf32, #model.dims<batch, context, kv_heads, head_dim>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs a cache and its result of one type [batch, heads, context, columns]}}
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x6x5x4xf32, #model.dims<batch, context, kv_heads, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, context, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, context, kv_heads, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, context, kv_heads, head_dim>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// -----

// The value cache has fewer positions than the key cache.
func.func @attend_cache_c4_two_contexts(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x8x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs a cache and its result of one type [batch, heads, context, columns]}}
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x8x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x8x4xf32, #model.dims<batch, kv_heads, context, head_dim>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// -----

// The cache has another element type than k.
func.func @attend_cache_c4_other_element(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xbf16, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xbf16, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs a cache and its result of one type [batch, heads, context, columns]}}
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x5x6x4xbf16, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xbf16, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xbf16, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xbf16, #model.dims<batch, kv_heads, context, head_dim>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// -----

// A token attends to itself at least.
func.func @attend_cache_c5_empty_window(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>> {
  // expected-error @+1 {{needs a window of at least 1 under a causal mask, got 0}}
  %y:3 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.0e-01 : f64, window = 0 : i64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>)
  return %y#0 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>
}

// -----

// Sums are f32.
func.func @attend_cache_c6_sums_in_bf16(%q: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %k: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>, %a: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, %b: tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> tensor<2x3x5x7xbf16, #model.dims<batch, seq, kv_heads, group>> {
  // expected-error @+1 {{needs an f32 log_sum_exp like q without its last dimension}}
  %y:4 = model.attend_cache %q, %k, %v, %p, %a, %b {scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x5x6x4xf32, #model.dims<batch, kv_heads, context, head_dim>>, tensor<2x3x5x7xbf16, #model.dims<batch, seq, kv_heads, group>>)
  return %y#3 : tensor<2x3x5x7xbf16, #model.dims<batch, seq, kv_heads, group>>
}
