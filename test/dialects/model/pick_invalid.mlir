// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of pick.

// Labels have another dimension.
func.func @pick_c1_labels_differ(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>, %x1: tensor<3xi32, #model.dims<batch>>) -> tensor<3xf32, #model.dims<seq>> {
  // expected-error @+1 {{needs labels and a result with the dimensions of x but the last}}
  %y = model.pick %x0, %x1 : (tensor<3x5xf32, #model.dims<seq, vocab>>, tensor<3xi32, #model.dims<batch>>) -> tensor<3xf32, #model.dims<seq>>
  return %y : tensor<3xf32, #model.dims<seq>>
}

// -----

// The result must not have the last dimension of x.
func.func @pick_c1_result_differs(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>, %x1: tensor<3xi32, #model.dims<seq>>) -> tensor<3x5xf32, #model.dims<seq, vocab>> {
  // expected-error @+1 {{needs labels and a result with the dimensions of x but the last}}
  %y = model.pick %x0, %x1 : (tensor<3x5xf32, #model.dims<seq, vocab>>, tensor<3xi32, #model.dims<seq>>) -> tensor<3x5xf32, #model.dims<seq, vocab>>
  return %y : tensor<3x5xf32, #model.dims<seq, vocab>>
}

// -----

// Labels must be i32.
func.func @pick_c1_labels_of_other_type(%x0: tensor<3x5xf32, #model.dims<seq, vocab>>, %x1: tensor<3xf32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>> {
  // expected-error @+1 {{needs labels of type i32, got 'f32'}}
  %y = model.pick %x0, %x1 : (tensor<3x5xf32, #model.dims<seq, vocab>>, tensor<3xf32, #model.dims<seq>>) -> tensor<3xf32, #model.dims<seq>>
  return %y : tensor<3xf32, #model.dims<seq>>
}
