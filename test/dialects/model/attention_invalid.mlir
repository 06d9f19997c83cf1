// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of attention.

// v has another head_dim than k.
func.func @attention_c1_k_and_v_differ(%x0: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x6xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>) {
  // expected-error @+1 {{needs k [batch, seq, heads, head_dim] and v of one type}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x6xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#0, %y#1 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>
}

// -----

// k has no head dimension.
func.func @attention_c1_k_of_rank_3(%x0: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %x1: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, %x2: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>) {
  // expected-error @+1 {{needs k [batch, seq, heads, head_dim] and v of one type}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#0, %y#1 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>
}

// -----

// q has no head dimension.
func.func @attention_c2_q_lacks_a_dimension(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<2x3xf32, #model.dims<batch, seq>>) {
  // expected-error @+1 {{needs q with the dimensions of k and at most a group before the last}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<2x3xf32, #model.dims<batch, seq>>)
  return %y#0, %y#1 : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<2x3xf32, #model.dims<batch, seq>>
}

// -----

// The group must come after the key heads.
func.func @attention_c2_group_before_the_heads(%x0: tensor<2x3x7x5x4xf32, #model.dims<batch, seq, group, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x7x5x4xf32, #model.dims<batch, seq, group, kv_heads, head_dim>>, tensor<2x3x7x5xf32, #model.dims<batch, seq, group, kv_heads>>) {
  // expected-error @+1 {{needs q with the dimensions of k and at most a group before the last}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x7x5x4xf32, #model.dims<batch, seq, group, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x7x5x4xf32, #model.dims<batch, seq, group, kv_heads, head_dim>>, tensor<2x3x7x5xf32, #model.dims<batch, seq, group, kv_heads>>)
  return %y#0, %y#1 : tensor<2x3x7x5x4xf32, #model.dims<batch, seq, group, kv_heads, head_dim>>, tensor<2x3x7x5xf32, #model.dims<batch, seq, group, kv_heads>>
}

// -----

// out lacks q's group.
func.func @attention_c3_out_differs(%x0: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>) {
  // expected-error @+1 {{needs out like q with the last dimension of v and log_sum_exp like q without its last dimension}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#0, %y#1 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>
}

// -----

// log_sum_exp lacks q's group.
func.func @attention_c3_log_sum_exp_differs(%x0: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>) {
  // expected-error @+1 {{needs out like q with the last dimension of v and log_sum_exp like q without its last dimension}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0, %y#1 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>
}

// -----

// `unsplit` has k's sizes instead of q's.
func.func @attention_c4_unsplit_too_short(%x0: tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>) {
  // expected-error @+1 {{needs one entry per dimension in origins and unsplit, tensor has 5}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64, unsplit = array<i64: 2, 3, 5, 4>} : (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>)
  return %y#0, %y#1 : tensor<2x3x5x7x4xf32, #model.dims<batch, seq, kv_heads, group, head_dim>>, tensor<2x3x5x7xf32, #model.dims<batch, seq, kv_heads, group>>
}

// -----

// A shard of the queries needs `unsplit`.
func.func @attention_c5_more_keys(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs keys of all 3 positions, got 6}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// k has twice as many positions as `unsplit`.
func.func @attention_c5_unsplit_differs(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs keys of all 3 positions, got 6}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64, unsplit = array<i64: 2, 3, 5, 4>} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x6x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// A window ends at the query.
func.func @attention_c6_no_mask(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs a window of at least 1 under a causal mask, got 2}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64, window = 2 : i64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// A query attends to itself at least.
func.func @attention_c6_empty_window(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs a window of at least 1 under a causal mask, got 0}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64, causal, window = 0 : i64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// A cap of 0 leaves no scores.
func.func @attention_c6_cap(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs a soft_cap above 0, got 0}}
  %y:2 = model.attention %x0, %x1, %x2 {id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64, soft_cap = 0.0 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// Without a causal mask, later keys are visible.
func.func @attention_c7_no_mask(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x3: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs visible_from with the first two dimensions of q, and a causal mask}}
  %y:2 = model.attention %x0, %x1, %x2, %x3 {id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// One value per query.
func.func @attention_c7_too_short(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x3: tensor<2x2xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs visible_from with the first two dimensions of q, and a causal mask}}
  %y:2 = model.attention %x0, %x1, %x2, %x3 {id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64, causal} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x2xi32, #model.dims<batch, seq>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

// Positions are integers.
func.func @attention_c7_floats(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x1: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x2: tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, %x3: tensor<2x3xf32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>> {
  // expected-error @+1 {{needs visible_from of type i32}}
  %y:2 = model.attention %x0, %x1, %x2, %x3 {id = 1 : i64, rate = 0.0 : f64, scale = 5.0e-01 : f64, causal} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3xf32, #model.dims<batch, seq>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
}

// -----

func.func @attention_c1_two_lengths_of_one_dimension(%q: tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, %k: tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs k [batch, seq, heads, head_dim] and v of one type}}
  %y:2 = model.attention %q, %k, %v {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>) -> (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, heads>>)
  return %y#0 : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

func.func @attention_c3_columns_of_q(%q: tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, %k: tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, %v: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, value_dim>>) -> tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs out like q with the last dimension of v}}
  %y:2 = model.attention %q, %k, %v {causal, id = 1 : i64, rate = 0.000000e+00 : f64, scale = 5.000000e-01 : f64} : (tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, value_dim>>) -> (tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3x5xf32, #model.dims<batch, seq, heads>>)
  return %y#0 : tensor<2x3x5x6xf32, #model.dims<batch, seq, heads, head_dim>>
}
