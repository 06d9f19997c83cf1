// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of view.

// The result has fewer elements.
func.func @view_c1_fewer_elements(%x: tensor<12xf32, #model.dims<element>>) -> tensor<3x3xf32, #model.dims<rows, columns>> {
  // expected-error @+1 {{needs a result with the elements of x}}
  %y = model.view %x : (tensor<12xf32, #model.dims<element>>) -> tensor<3x3xf32, #model.dims<rows, columns>>
  return %y : tensor<3x3xf32, #model.dims<rows, columns>>
}

// -----

// The result has another type.
func.func @view_c1_other_type(%x: tensor<12xf32, #model.dims<element>>) -> tensor<3x4xbf16, #model.dims<rows, columns>> {
  // expected-error @+1 {{needs a result with the elements of x}}
  %y = model.view %x : (tensor<12xf32, #model.dims<element>>) -> tensor<3x4xbf16, #model.dims<rows, columns>>
  return %y : tensor<3x4xbf16, #model.dims<rows, columns>>
}
