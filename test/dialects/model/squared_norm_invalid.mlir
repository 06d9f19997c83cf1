// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// What the verifier of squared_norm refuses.

// The norm is over all elements.
func.func @squared_norm_c1_with_a_dimension(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result of type tensor<f32>}}
  %y = model.squared_norm %x0 {weight = 1.0 : f64} : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}

// -----

// The sum of many squares needs f32.
func.func @squared_norm_c1_narrow_result(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<bf16> {
  // expected-error @+1 {{needs a result of type tensor<f32>}}
  %y = model.squared_norm %x0 {weight = 1.0 : f64} : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<bf16>
  return %y : tensor<bf16>
}
