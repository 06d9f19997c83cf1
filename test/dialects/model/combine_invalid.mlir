// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of combine.

// Slots have another sequence length.
func.func @combine_c1_slots_differ(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x5xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs ids and slots of one type}}
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x5xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Ids must be i32.
func.func @combine_c1_ids_of_other_type(%x0: tensor<2x3x4xf32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xf32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs ids and slots of type i32, got 'f32'}}
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xf32, #model.dims<choice, batch, seq>>, tensor<2x3x4xf32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Weights have no choice dimension.
func.func @combine_c1_weights_differ(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>, %x3: tensor<3x4xf32, #model.dims<batch, seq>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs weights with the dimensions of ids}}
  %y = model.combine %x0, %x1, %x2, %x3 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>, tensor<3x4xf32, #model.dims<batch, seq>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Rows of tokens have another sequence length.
func.func @combine_c2_tokens_of_another_sequence(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x5x5xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs rows of tokens with the dimensions of ids}}
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x5x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x5x5xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Rows of tokens have no hidden dimension.
func.func @combine_c2_no_rows(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4xf32, #model.dims<batch, seq>> {
  // expected-error @+1 {{needs rows of tokens with the dimensions of ids}}
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4xf32, #model.dims<batch, seq>>
  return %y : tensor<3x4xf32, #model.dims<batch, seq>>
}

// -----

// Rows of experts have no capacity dimension.
func.func @combine_c3_no_capacity(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x5xf32, #model.dims<expert, batch, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs rows of experts}}
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x5xf32, #model.dims<expert, batch, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Rows of experts have another hidden size.
func.func @combine_c3_hidden_differs(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x3x7x8xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs rows of experts}}
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x3x7x8xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
}

// -----

// Rows of experts have fewer samples.
func.func @combine_c3_batch_differs(%x0: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x1: tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, %x2: tensor<6x2x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>> {
  // expected-error @+1 {{needs rows of experts}}
  %y = model.combine %x0, %x1, %x2 : (tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<2x3x4xi32, #model.dims<choice, batch, seq>>, tensor<6x2x7x5xf32, #model.dims<expert, batch, capacity, hidden>>) -> tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<3x4x5xf32, #model.dims<batch, seq, hidden>>
}
