// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifiers of reductions.

// The result has a dimension that the operand lacks.
func.func @reduce_sum_c1_new_dimension(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<4xf32, #model.dims<c>> {
  // expected-error @+1 {{needs a result whose dimensions are a subsequence of the operand's}}
  %y = model.reduce_sum %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<4xf32, #model.dims<c>>
  return %y : tensor<4xf32, #model.dims<c>>
}

// -----

// The result has a dimension that the operand lacks.
func.func @reduce_max_c1_new_dimension(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<4xf32, #model.dims<c>> {
  // expected-error @+1 {{needs a result whose dimensions are a subsequence of the operand's}}
  %y = model.reduce_max %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<4xf32, #model.dims<c>>
  return %y : tensor<4xf32, #model.dims<c>>
}

// -----

// The name agrees, but the size differs.
func.func @reduce_sum_c1_size_differs(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<b>> {
  // expected-error @+1 {{needs a result whose dimensions are a subsequence of the operand's}}
  %y = model.reduce_sum %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<b>>
  return %y : tensor<2xf32, #model.dims<b>>
}
