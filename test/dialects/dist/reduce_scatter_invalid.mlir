// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of reduce_scatter.

// The group has no axis.
func.func @reduce_scatter_c1_without_axes(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs at least one axis}}
  %y = dist.reduce_scatter %x0 over [] dim 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// Dimension 1 changes instead of dimension 0.
func.func @reduce_scatter_c2_another_dimension_differs(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs types that differ in dimension 0 by a whole factor}}
  %y = dist.reduce_scatter %x0 over ["tp"] dim 0 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// The larger size is not a multiple of the smaller one.
func.func @reduce_scatter_c2_no_whole_factor(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x4xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs types that differ in dimension 1 by a whole factor}}
  %y = dist.reduce_scatter %x0 over ["tp"] dim 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x4xf32, #model.dims<a, b>>
  return %y : tensor<2x4xf32, #model.dims<a, b>>
}

// -----

// The tensor has only two dimensions.
func.func @reduce_scatter_c2_no_such_dimension(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs types that differ in dimension 2 by a whole factor}}
  %y = dist.reduce_scatter %x0 over ["tp"] dim 2 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// A collective does not change the element type.
func.func @reduce_scatter_c2_element_types_differ(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xbf16, #model.dims<a, b>> {
  // expected-error @+1 {{needs types that differ in dimension 1 by a whole factor}}
  %y = dist.reduce_scatter %x0 over ["tp"] dim 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x3xbf16, #model.dims<a, b>>
  return %y : tensor<2x3xbf16, #model.dims<a, b>>
}
