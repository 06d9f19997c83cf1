// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifiers of concat and columns.

func.func @concat_c1_no_heads(%a: tensor<2x5x4xf32, #model.dims<batch, seq, a>>, %b: tensor<2x5x2xf32, #model.dims<batch, seq, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>> {
  // expected-error @+1 {{needs a with the dimensions of the result but the last}}
  %y = model.concat %a, %b : (tensor<2x5x4xf32, #model.dims<batch, seq, a>>, tensor<2x5x2xf32, #model.dims<batch, seq, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
  return %y : tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
}

// -----

func.func @concat_c1_name_of_the_result(%a: tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, ab>>, %b: tensor<2x5x3x2xf32, #model.dims<batch, seq, heads, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>> {
  // expected-error @+1 {{needs a with the dimensions of the result but the last}}
  %y = model.concat %a, %b : (tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, ab>>, tensor<2x5x3x2xf32, #model.dims<batch, seq, heads, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
  return %y : tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
}

// -----

func.func @concat_c2_no_sequence(%a: tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, a>>, %b: tensor<2x2xf32, #model.dims<batch, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>> {
  // expected-error @+1 {{needs b with the dimensions of the result but the last}}
  %y = model.concat %a, %b : (tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, a>>, tensor<2x2xf32, #model.dims<batch, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
  return %y : tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
}

// -----

func.func @concat_c3_columns(%a: tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, a>>, %b: tensor<2x5x3x3xf32, #model.dims<batch, seq, heads, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>> {
  // expected-error @+1 {{needs a result with the columns of a and b}}
  %y = model.concat %a, %b : (tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, a>>, tensor<2x5x3x3xf32, #model.dims<batch, seq, heads, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
  return %y : tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
}

// -----

func.func @concat_c3_names(%a: tensor<2x5x3x3xf32, #model.dims<batch, seq, heads, a>>, %b: tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, a>>) -> tensor<2x5x3x7xf32, #model.dims<batch, seq, heads, ab>> {
  // expected-error @+1 {{needs a result with the columns of a and b}}
  %y = model.concat %a, %b : (tensor<2x5x3x3xf32, #model.dims<batch, seq, heads, a>>, tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, a>>) -> tensor<2x5x3x7xf32, #model.dims<batch, seq, heads, ab>>
  return %y : tensor<2x5x3x7xf32, #model.dims<batch, seq, heads, ab>>
}

// -----

func.func @columns_c1_batch(%x: tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>) -> tensor<5x2xf32, #model.dims<seq, b>> {
  // expected-error @+1 {{needs a result with the dimensions of x but the last}}
  %y = model.columns %x {first = 4 : i64} : (tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>) -> tensor<5x2xf32, #model.dims<seq, b>>
  return %y : tensor<5x2xf32, #model.dims<seq, b>>
}

// -----

func.func @columns_c2_after_the_end(%x: tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>) -> tensor<2x5x3x2xf32, #model.dims<batch, seq, heads, b>> {
  // expected-error @+1 {{needs columns within x, got 2 from 5 on of 6}}
  %y = model.columns %x {first = 5 : i64} : (tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>) -> tensor<2x5x3x2xf32, #model.dims<batch, seq, heads, b>>
  return %y : tensor<2x5x3x2xf32, #model.dims<batch, seq, heads, b>>
}
