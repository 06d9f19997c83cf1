// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of accumulate.

// x is not broadcast.
func.func @accumulate_c1_dimensions_differ(%x0: tensor<2x3xf32, #model.dims<a, b>>, %x1: tensor<2xf32, #model.dims<a>>) -> tensor<2x3xf32, #model.dims<a, b>> {
  // expected-error @+1 {{needs an accumulator of floats with the dimensions of x}}
  %y = model.accumulate %x0, %x1 : (tensor<2x3xf32, #model.dims<a, b>>, tensor<2xf32, #model.dims<a>>) -> tensor<2x3xf32, #model.dims<a, b>>
  return %y : tensor<2x3xf32, #model.dims<a, b>>
}

// -----

// The accumulator must hold floats.
func.func @accumulate_c1_integer_accumulator(%x0: tensor<2xi32, #model.dims<a>>, %x1: tensor<2xf32, #model.dims<a>>) -> tensor<2xi32, #model.dims<a>> {
  // expected-error @+1 {{needs an accumulator of floats with the dimensions of x}}
  %y = model.accumulate %x0, %x1 : (tensor<2xi32, #model.dims<a>>, tensor<2xf32, #model.dims<a>>) -> tensor<2xi32, #model.dims<a>>
  return %y : tensor<2xi32, #model.dims<a>>
}

// -----

// The result must have the accumulator's type.
func.func @accumulate_c1_result_differs(%x0: tensor<2xf32, #model.dims<a>>, %x1: tensor<2xf32, #model.dims<a>>) -> tensor<2xbf16, #model.dims<a>> {
  // expected-error @+1 {{needs an accumulator of floats with the dimensions of x}}
  %y = model.accumulate %x0, %x1 : (tensor<2xf32, #model.dims<a>>, tensor<2xf32, #model.dims<a>>) -> tensor<2xbf16, #model.dims<a>>
  return %y : tensor<2xbf16, #model.dims<a>>
}
