// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of embed_grad.

// The result must be f32, because it is a sum.
func.func @embed_grad_c1_narrow_result(%x0: tensor<2x3xi32, #model.dims<batch, seq>>, %x1: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xbf16, #model.dims<vocab, hidden>> {
  // expected-error @+1 {{needs a cotangent [ids.., hidden] and an f32 result [rows, hidden]}}
  %y = model.embed_grad %x0, %x1 : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xbf16, #model.dims<vocab, hidden>>
  return %y : tensor<5x4xbf16, #model.dims<vocab, hidden>>
}

// -----

// The cotangent lacks a dimension of ids.
func.func @embed_grad_c1_cotangent_differs(%x0: tensor<2x3xi32, #model.dims<batch, seq>>, %x1: tensor<3x4xf32, #model.dims<seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>> {
  // expected-error @+1 {{needs a cotangent [ids.., hidden] and an f32 result [rows, hidden]}}
  %y = model.embed_grad %x0, %x1 : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<3x4xf32, #model.dims<seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>>
  return %y : tensor<5x4xf32, #model.dims<vocab, hidden>>
}

// -----

// The columns of the result are another dimension.
func.func @embed_grad_c1_columns_differ(%x0: tensor<2x3xi32, #model.dims<batch, seq>>, %x1: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, ffn>> {
  // expected-error @+1 {{needs a cotangent [ids.., hidden] and an f32 result [rows, hidden]}}
  %y = model.embed_grad %x0, %x1 : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, ffn>>
  return %y : tensor<5x4xf32, #model.dims<vocab, ffn>>
}

// -----

// The columns of the result have another size.
func.func @embed_grad_c1_sizes_differ(%x0: tensor<2x3xi32, #model.dims<batch, seq>>, %x1: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x6xf32, #model.dims<vocab, hidden>> {
  // expected-error @+1 {{needs a cotangent [ids.., hidden] and an f32 result [rows, hidden]}}
  %y = model.embed_grad %x0, %x1 : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x6xf32, #model.dims<vocab, hidden>>
  return %y : tensor<5x6xf32, #model.dims<vocab, hidden>>
}

// -----

// Ids must be i32.
func.func @embed_grad_c1_ids_of_other_type(%x0: tensor<2x3xi64, #model.dims<batch, seq>>, %x1: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>> {
  // expected-error @+1 {{needs ids of type i32, got 'i64'}}
  %y = model.embed_grad %x0, %x1 : (tensor<2x3xi64, #model.dims<batch, seq>>, tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<5x4xf32, #model.dims<vocab, hidden>>
  return %y : tensor<5x4xf32, #model.dims<vocab, hidden>>
}
