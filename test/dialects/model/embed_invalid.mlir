// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of embed.

// The table has three dimensions instead of two.
func.func @embed_c1_table_of_rank_3(%x0: tensor<2x5x4xf32, #model.dims<a, vocab, hidden>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs a table [rows, hidden] and a result [ids.., hidden]}}
  %y = model.embed %x0, %x1 : (tensor<2x5x4xf32, #model.dims<a, vocab, hidden>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// The result's last dimension must be that of the table.
func.func @embed_c1_columns_differ(%x0: tensor<5x4xf32, #model.dims<vocab, hidden>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, ffn>> {
  // expected-error @+1 {{needs a table [rows, hidden] and a result [ids.., hidden]}}
  %y = model.embed %x0, %x1 : (tensor<5x4xf32, #model.dims<vocab, hidden>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, ffn>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, ffn>>
}

// -----

// The columns of the table have another size.
func.func @embed_c1_sizes_differ(%x0: tensor<5x4xf32, #model.dims<vocab, hidden>>, %x1: tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x6xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs a table [rows, hidden] and a result [ids.., hidden]}}
  %y = model.embed %x0, %x1 : (tensor<5x4xf32, #model.dims<vocab, hidden>>, tensor<2x3xi32, #model.dims<batch, seq>>) -> tensor<2x3x6xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x6xf32, #model.dims<batch, seq, hidden>>
}

// -----

// The result has a dimension that ids lack.
func.func @embed_c1_ids_differ(%x0: tensor<5x4xf32, #model.dims<vocab, hidden>>, %x1: tensor<3xi32, #model.dims<seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs a table [rows, hidden] and a result [ids.., hidden]}}
  %y = model.embed %x0, %x1 : (tensor<5x4xf32, #model.dims<vocab, hidden>>, tensor<3xi32, #model.dims<seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Ids must be i32.
func.func @embed_c2_ids_of_other_type(%x0: tensor<5x4xf32, #model.dims<vocab, hidden>>, %x1: tensor<2x3xi64, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs ids of type i32, got 'i64'}}
  %y = model.embed %x0, %x1 : (tensor<5x4xf32, #model.dims<vocab, hidden>>, tensor<2x3xi64, #model.dims<batch, seq>>) -> tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
}
