// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of squared_norm.

// The norm has no dimensions.
func.func @squared_norm_c1_with_a_dimension(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result of type tensor<f32>}}
  %y = model.squared_norm %x0 {weight = 1.0 : f64} : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The result must be f32, because it is a sum.
func.func @squared_norm_c1_narrow_result(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<bf16> {
  // expected-error @+1 {{needs a result of type tensor<f32>}}
  %y = model.squared_norm %x0 {weight = 1.0 : f64} : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<bf16>
  return %y : tensor<bf16>
}
