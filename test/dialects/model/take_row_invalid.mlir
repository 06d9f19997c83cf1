// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of take_row.

// The result has two positions instead of one.
func.func @take_row_c1_two_positions(%x: tensor<2x5x4xf32, #model.dims<batch, seq, hidden>>, %r: tensor<2xi32, #model.dims<batch>>) -> tensor<2x2x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs x [batch, seq, hidden] and a result with one position of it}}
  %y = model.take_row %x, %r : (tensor<2x5x4xf32, #model.dims<batch, seq, hidden>>, tensor<2xi32, #model.dims<batch>>) -> tensor<2x2x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x2x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// x has no sequence dimension.
func.func @take_row_c1_no_sequence(%x: tensor<2x4xf32, #model.dims<batch, hidden>>, %r: tensor<2xi32, #model.dims<batch>>) -> tensor<2x1x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs x [batch, seq, hidden] and a result with one position of it}}
  %y = model.take_row %x, %r : (tensor<2x4xf32, #model.dims<batch, hidden>>, tensor<2xi32, #model.dims<batch>>) -> tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// rows has one row per token instead of one per sequence.
func.func @take_row_c2_rows_of_tokens(%x: tensor<2x5x4xf32, #model.dims<batch, seq, hidden>>, %r: tensor<2x5xi32, #model.dims<batch, seq>>) -> tensor<2x1x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs i32 rows with the first dimension of x}}
  %y = model.take_row %x, %r : (tensor<2x5x4xf32, #model.dims<batch, seq, hidden>>, tensor<2x5xi32, #model.dims<batch, seq>>) -> tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Rows are not integers.
func.func @take_row_c2_rows_as_numbers(%x: tensor<2x5x4xf32, #model.dims<batch, seq, hidden>>, %r: tensor<2xf32, #model.dims<batch>>) -> tensor<2x1x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs i32 rows with the first dimension of x}}
  %y = model.take_row %x, %r : (tensor<2x5x4xf32, #model.dims<batch, seq, hidden>>, tensor<2xf32, #model.dims<batch>>) -> tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
}
