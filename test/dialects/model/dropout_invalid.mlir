// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// What the verifier of dropout refuses.

// A dimension is lost.
func.func @dropout_c1_dimensions_differ(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3xf32, #model.dims<batch, seq>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.1 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3xf32, #model.dims<batch, seq>>
  return %y : tensor<2x3xf32, #model.dims<batch, seq>>
}

// -----

// Random bits are counted per sample.
func.func @dropout_c1_batch_is_not_first(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  // expected-error @+1 {{needs batch as first dimension}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.1 : f64} : (tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}

// -----

// Nothing is dropped: leave the op out.
func.func @dropout_c2_rate_of_zero(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs a rate between 0 and 1, got 0.0}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.0 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Everything is dropped.
func.func @dropout_c2_rate_of_one(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs a rate between 0 and 1, got 1.0}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 1.0 : f64} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Two sizes for three dimensions.
func.func @dropout_c3_unsplit_too_short(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs one entry per dimension in origins and unsplit, tensor has 3}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.1 : f64, unsplit = array<i64: 4, 3>} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Four origins for three dimensions.
func.func @dropout_c3_origins_too_long(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs one entry per dimension in origins and unsplit, tensor has 3}}
  %y = model.dropout %x0 {id = 3 : i64, rate = 0.1 : f64, origins = [unit, unit, unit, unit]} : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}
