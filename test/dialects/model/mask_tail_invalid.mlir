// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of mask_tail.

// The result lacks a dimension.
func.func @mask_tail_c1_dimensions_differ(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3xf32, #model.dims<seq>> {
  // expected-error @+1 {{needs a result with the operand's dimensions}}
  %y = model.mask_tail %x0 {fill = 0.0 : f64, valid = 4 : i64} : (tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3xf32, #model.dims<seq>>
  return %y : tensor<3xf32, #model.dims<seq>>
}

// -----

// A number has no columns.
func.func @mask_tail_c1_without_dimension(%x0: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{needs a tensor with a dimension}}
  %y = model.mask_tail %x0 {fill = 0.0 : f64, valid = 4 : i64} : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}
