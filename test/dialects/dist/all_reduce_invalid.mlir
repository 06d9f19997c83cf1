// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of all_reduce.

// The group has no axis.
func.func @all_reduce_c1_without_axes(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs at least one axis}}
  %y = dist.all_reduce %x0 over [] "sum" : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// An all-reduce keeps the shape.
func.func @all_reduce_c2_types_differ(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs equal types}}
  %y = dist.all_reduce %x0 over ["tp"] "sum" : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// Only sum and max are reductions.
func.func @all_reduce_c3_unknown_reduction(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs reduction sum or max, got mean}}
  %y = dist.all_reduce %x0 over ["tp"] "mean" : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}
