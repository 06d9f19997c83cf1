// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of cotangent.

// The result lacks a dimension.
func.func @cotangent_c1_dimensions_differ(%x0: tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result with the dimensions of the stream}}
  %y = model.cotangent %x0 : (tensor<2x3xf32, #model.dims<a, b>>) -> tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}
