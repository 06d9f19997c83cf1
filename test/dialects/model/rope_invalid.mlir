// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of rope.

// The result lacks a dimension.
func.func @rope_c1_dimensions_differ(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs x with the dimensions of positions first and an even last one}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// The dimensions of positions are in another order.
func.func @rope_c1_positions_do_not_lead(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<3x2xi32, #model.dims<seq, batch>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs x with the dimensions of positions first and an even last one}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<3x2xi32, #model.dims<seq, batch>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

// positions has another size than x.
func.func @rope_c1_sizes_differ(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x4xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs x with the dimensions of positions first and an even last one}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x4xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

// A number has no last dimension to split in halves.
func.func @rope_c1_one_number(%x0: tensor<f32>, %x1: tensor<i32>) -> tensor<f32> {
  // expected-error @+1 {{needs x with the dimensions of positions first and an even last one}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64} : (tensor<f32>, tensor<i32>) -> tensor<f32>
  return %y : tensor<f32>
}

// -----

// The last dimension has an odd size.
func.func @rope_c1_odd_head_dim(%x0: tensor<2x3x5xf32, #model.dims<batch, seq, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, head_dim>> {
  // expected-error @+1 {{needs x with the dimensions of positions first and an even last one}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64} : (tensor<2x3x5xf32, #model.dims<batch, seq, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, head_dim>>
  return %y : tensor<2x3x5xf32, #model.dims<batch, seq, head_dim>>
}

// -----

// Positions must be i32.
func.func @rope_c2_positions_of_other_type(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xf32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs positions of type i32, got 'f32'}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xf32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

// A pair has two columns.
func.func @rope_c3_odd(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs an even number of rotary columns from 2 to 4, got 3}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64, rotary = 3 : i64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

// A head has four columns.
func.func @rope_c3_wider(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs an even number of rotary columns from 2 to 4, got 6}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64, rotary = 6 : i64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

// Frequencies are divided by the factor.
func.func @rope_c4_factor(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs factor, original_context and amplitude above 0}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64, factor = 0.0 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

// Slow and fast say where the factor counts.
func.func @rope_c4_no_factor(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs factor, and slow and fast that differ, to scale some positions less}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64, slow = 1.0 : f64, fast = 4.0 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

// Equal borders have no range between them.
func.func @rope_c4_equal(%x0: tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>> {
  // expected-error @+1 {{needs factor, and slow and fast that differ, to scale some positions less}}
  %y = model.rope %x0, %x1 {theta = 1.0e4 : f64, factor = 2.0 : f64, slow = 1.0 : f64, fast = 1.0 : f64} : (tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
  return %y : tensor<2x3x5x4xf32, #model.dims<batch, seq, heads, head_dim>>
}

// -----

func.func @rope_c3_columns_after_the_end(%x: tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>> {
  // expected-error @+1 {{needs an even first column, and the rotary columns from it on among the 6 columns}}
  %y = model.rope %x, %p {theta = 1.0e4 : f64, rotary = 4 : i64, first = 4 : i64} : (tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>>
  return %y : tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>>
}

// -----

func.func @rope_c3_odd_first_column(%x: tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>>, %p: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>> {
  // expected-error @+1 {{needs an even first column, and the rotary columns from it on among the 6 columns}}
  %y = model.rope %x, %p {theta = 1.0e4 : f64, rotary = 2 : i64, first = 3 : i64} : (tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>>
  return %y : tensor<2x3x6xf32, #model.dims<batch, seq, head_dim>>
}
