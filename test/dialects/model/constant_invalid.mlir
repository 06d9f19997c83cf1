// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of constant.

// A constant has no dimensions; element-wise ops broadcast it.
func.func @constant_with_a_dimension() -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result without dimensions}}
  %y = model.constant 2.5 : tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}
