// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of pick_grad.

// The result has no column dimension.
func.func @pick_grad_c1_result_without_columns(%x0: tensor<3xi32, #model.dims<seq>>, %x1: tensor<3xf32, #model.dims<seq>>, %x2: tensor<3xf32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>> {
  // expected-error @+1 {{needs a result with the dimensions of labels and one more}}
  %y = model.pick_grad %x0, %x1, %x2 : (tensor<3xi32, #model.dims<seq>>, tensor<3xf32, #model.dims<seq>>, tensor<3xf32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>>
  return %y : tensor<3xf32, #model.dims<seq>>
}

// -----

// `like` has another size than the result.
func.func @pick_grad_c1_like_differs(%x0: tensor<3xi32, #model.dims<seq>>, %x1: tensor<3xf32, #model.dims<seq>>, %x2: tensor<3x6xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  // expected-error @+1 {{needs a result with the dimensions of labels and one more}}
  %y = model.pick_grad %x0, %x1, %x2 : (tensor<3xi32, #model.dims<seq>>, tensor<3xf32, #model.dims<seq>>, tensor<3x6xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}

// -----

// The cotangent has a dimension that labels lack.
func.func @pick_grad_c1_cotangent_differs(%x0: tensor<3xi32, #model.dims<seq>>, %x1: tensor<2xf32, #model.dims<batch>>, %x2: tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  // expected-error @+1 {{needs a result with the dimensions of labels and one more}}
  %y = model.pick_grad %x0, %x1, %x2 : (tensor<3xi32, #model.dims<seq>>, tensor<2xf32, #model.dims<batch>>, tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}

// -----

// Labels must be i32.
func.func @pick_grad_c1_labels_of_other_type(%x0: tensor<3xf32, #model.dims<seq>>, %x1: tensor<3xf32, #model.dims<seq>>, %x2: tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  // expected-error @+1 {{needs labels of type i32, got 'f32'}}
  %y = model.pick_grad %x0, %x1, %x2 : (tensor<3xf32, #model.dims<seq>>, tensor<3xf32, #model.dims<seq>>, tensor<3x5xf32, #model.dims<seq, vocab>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}
