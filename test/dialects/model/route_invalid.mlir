// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of route.

// Slots have another sequence length.
func.func @route_c1_slots_differ(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x4xi32, #model.dims<choice, batch, seq>>) {
  // expected-error @+1 {{needs ids and slots of one type}}
  %ids, %slots = model.route %x0 {capacity = 2 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x4xi32, #model.dims<choice, batch, seq>>)
  return %ids, %slots : tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x4xi32, #model.dims<choice, batch, seq>>
}

// -----

// Ids and slots have no choice dimension.
func.func @route_c1_no_choice(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2xi32, #model.dims<choice, batch>>, tensor<1x2xi32, #model.dims<choice, batch>>) {
  // expected-error @+1 {{needs ids and slots of one type}}
  %ids, %slots = model.route %x0 {capacity = 2 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2xi32, #model.dims<choice, batch>>, tensor<1x2xi32, #model.dims<choice, batch>>)
  return %ids, %slots : tensor<1x2xi32, #model.dims<choice, batch>>, tensor<1x2xi32, #model.dims<choice, batch>>
}

// -----

// Ids must be i32.
func.func @route_c1_ids_of_other_type(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xf32, #model.dims<choice, batch, seq>>, tensor<1x2x3xf32, #model.dims<choice, batch, seq>>) {
  // expected-error @+1 {{needs ids and slots of type i32, got 'f32'}}
  %ids, %slots = model.route %x0 {capacity = 2 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xf32, #model.dims<choice, batch, seq>>, tensor<1x2x3xf32, #model.dims<choice, batch, seq>>)
  return %ids, %slots : tensor<1x2x3xf32, #model.dims<choice, batch, seq>>, tensor<1x2x3xf32, #model.dims<choice, batch, seq>>
}

// -----

// Scores have another sequence length.
func.func @route_c1_scores_differ(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x4xi32, #model.dims<choice, batch, seq>>, tensor<1x2x4xi32, #model.dims<choice, batch, seq>>) {
  // expected-error @+1 {{needs scores with the batch and seq of ids}}
  %ids, %slots = model.route %x0 {capacity = 2 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x4xi32, #model.dims<choice, batch, seq>>, tensor<1x2x4xi32, #model.dims<choice, batch, seq>>)
  return %ids, %slots : tensor<1x2x4xi32, #model.dims<choice, batch, seq>>, tensor<1x2x4xi32, #model.dims<choice, batch, seq>>
}

// -----

// There are more choices than experts.
func.func @route_c2_more_choices_than_experts(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<5x2x3xi32, #model.dims<choice, batch, seq>>, tensor<5x2x3xi32, #model.dims<choice, batch, seq>>) {
  // expected-error @+1 {{needs at most as many choices as experts, got 5 of 4}}
  %ids, %slots = model.route %x0 {capacity = 2 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<5x2x3xi32, #model.dims<choice, batch, seq>>, tensor<5x2x3xi32, #model.dims<choice, batch, seq>>)
  return %ids, %slots : tensor<5x2x3xi32, #model.dims<choice, batch, seq>>, tensor<5x2x3xi32, #model.dims<choice, batch, seq>>
}

// -----

// The capacity is 0.
func.func @route_c3_no_capacity(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>) {
  // expected-error @+1 {{needs a capacity of at least 1, got 0}}
  %ids, %slots = model.route %x0 {capacity = 0 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>)
  return %ids, %slots : tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>
}

// -----

// Four experts do not split into three groups.
func.func @route_c4_unequal_groups(%x0: tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>) {
  // expected-error @+1 {{needs 1 to 32 equal groups of experts whose kept groups have an expert for each choice, got 1 of 3 groups of 4 experts for 1 choices}}
  %ids, %slots = model.route %x0 {capacity = 2 : i64, groups = 3 : i64, kept_groups = 1 : i64} : (tensor<2x3x4xf32, #model.dims<batch, seq, router>>) -> (tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>)
  return %ids, %slots : tensor<1x2x3xi32, #model.dims<choice, batch, seq>>, tensor<1x2x3xi32, #model.dims<choice, batch, seq>>
}
