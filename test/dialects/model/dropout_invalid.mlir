// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of dropout.

// The result lacks a dimension.
func.func @dropout_c1_dimensions_differ(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3xf32, #model.dims<batch, seq>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.1 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3xf32, #model.dims<batch, seq>>
  return %y : tensor<2x3xf32, #model.dims<batch, seq>>
}

// -----

// The batch must be the first dimension, because random bits depend on the sample.
func.func @dropout_c1_batch_is_not_first(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  // expected-error @+1 {{needs batch as first dimension}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.1 : f64} : (tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}

// -----

// A rate of 0 would drop nothing.
func.func @dropout_c2_rate_of_zero(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs a rate between 0 and 1, got 0.0}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.0 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// A rate of 1 would drop everything.
func.func @dropout_c2_rate_of_one(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs a rate between 0 and 1, got 1.0}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 1.0 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// `unsplit` has two sizes for three dimensions.
func.func @dropout_c3_unsplit_too_short(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs one entry per dimension in origins and unsplit, tensor has 3}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.1 : f64, unsplit = array<i64: 4, 3>} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// `origins` has four entries for three dimensions.
func.func @dropout_c3_origins_too_long(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs one entry per dimension in origins and unsplit, tensor has 3}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.1 : f64, origins = [unit, unit, unit, unit]} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}
