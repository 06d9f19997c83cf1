// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of all_to_all.

// The group has no axis.
func.func @all_to_all_c1_without_axes(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs at least one axis}}
  %y = dist.all_to_all %x0 over [] split 1 concat 0 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>>
  return %y : tensor<6x2xf32, #model.dims<a, b>>
}

// -----

// `split` and `concat` are the same dimension.
func.func @all_to_all_c2_one_dimension(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x6xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs types in which dimension 1 shrinks and dimension 1 grows by one factor}}
  %y = dist.all_to_all %x0 over ["ep"] split 1 concat 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<2x6xf32, #model.dims<a, b>>
  return %y : tensor<2x6xf32, #model.dims<a, b>>
}

// -----

// The tensor has only two dimensions.
func.func @all_to_all_c2_no_such_dimension(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs types in which dimension 2 shrinks and dimension 0 grows by one factor}}
  %y = dist.all_to_all %x0 over ["ep"] split 2 concat 0 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>>
  return %y : tensor<6x2xf32, #model.dims<a, b>>
}

// -----

// Dimension 1 shrinks instead of growing.
func.func @all_to_all_c2_other_way_round(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs types in which dimension 0 shrinks and dimension 1 grows by one factor}}
  %y = dist.all_to_all %x0 over ["ep"] split 0 concat 1 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xf32, #model.dims<a, b>>
  return %y : tensor<6x2xf32, #model.dims<a, b>>
}

// -----

// One dimension is divided by three, the other is doubled.
func.func @all_to_all_c2_factors_differ(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<4x2xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs types in which dimension 1 shrinks and dimension 0 grows by one factor}}
  %y = dist.all_to_all %x0 over ["ep"] split 1 concat 0 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<4x2xf32, #model.dims<a, b>>
  return %y : tensor<4x2xf32, #model.dims<a, b>>
}

// -----

// A dimension that is neither `split` nor `concat` changes.
func.func @all_to_all_c2_a_third_differs(%x0: tensor<2x6x5xf32, #model.dims<a, b, c>>) -> tensor<6x2x4xf32, #model.dims<a, b, c>> {
  // expected-error @+1 {{needs types in which dimension 1 shrinks and dimension 0 grows by one factor}}
  %y = dist.all_to_all %x0 over ["ep"] split 1 concat 0 : (tensor<2x6x5xf32, #model.dims<a, b, c>>) -> tensor<6x2x4xf32, #model.dims<a, b, c>>
  return %y : tensor<6x2x4xf32, #model.dims<a, b, c>>
}

// -----

// A collective does not change the element type.
func.func @all_to_all_c2_element_types_differ(%x0: tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xbf16, #model.dims<a, b>> {
  // expected-error @+1 {{needs types in which dimension 1 shrinks and dimension 0 grows by one factor}}
  %y = dist.all_to_all %x0 over ["ep"] split 1 concat 0 : (tensor<2x6xf32, #model.dims<a, b>>) -> tensor<6x2xbf16, #model.dims<a, b>>
  return %y : tensor<6x2xbf16, #model.dims<a, b>>
}
