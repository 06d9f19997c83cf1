// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of contract.

// No operand has this dimension of the result.
func.func @contract_c1_dimension_from_nowhere(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, %x1: tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, vocab>> {
  // expected-error @+1 {{needs each result dimension from an operand with equal size, got "vocab"}}
  %y = model.contract %x0, %x1 : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, vocab>>
  return %y : tensor<2x3x5xf32, #model.dims<batch, seq, vocab>>
}

// -----

// The dimension has another size in the operand.
func.func @contract_c1_size_of_the_result_differs(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, %x1: tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x7xf32, #model.dims<batch, seq, ffn>> {
  // expected-error @+1 {{needs each result dimension from an operand with equal size, got "ffn"}}
  %y = model.contract %x0, %x1 : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x7xf32, #model.dims<batch, seq, ffn>>
  return %y : tensor<2x3x7xf32, #model.dims<batch, seq, ffn>>
}

// -----

// A dimension of only one operand must be in the result.
func.func @contract_c1_row_dimension_lost(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, %x1: tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x5xf32, #model.dims<batch, ffn>> {
  // expected-error @+1 {{needs a dimension of only one operand in the result, lacks "seq"}}
  %y = model.contract %x0, %x1 : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<4x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x5xf32, #model.dims<batch, ffn>>
  return %y : tensor<2x5xf32, #model.dims<batch, ffn>>
}

// -----

// The contracted dimension has different sizes in the operands.
func.func @contract_c2_shared_sizes_differ(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, %x1: tensor<6x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, ffn>> {
  // expected-error @+1 {{needs equal sizes of the shared dimension "hidden", got 4 and 6}}
  %y = model.contract %x0, %x1 : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>, tensor<6x5xf32, #model.dims<hidden, ffn>>) -> tensor<2x3x5xf32, #model.dims<batch, seq, ffn>>
  return %y : tensor<2x3x5xf32, #model.dims<batch, seq, ffn>>
}
