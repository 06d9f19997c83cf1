// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of scalar.

// The slot is not in format/abi.h.
func.func @scalar_c1_unknown_slot() -> tensor<f32> {
  // expected-error @+1 {{needs one of loss_scale, learning_rate, gradient_scale, bias_correction1, bias_correction2, apply, group_rate1 to group_rate4; got momentum}}
  %y = model.scalar "momentum" : tensor<f32>
  return %y : tensor<f32>
}

// -----

// Slots must be f32.
func.func @scalar_c2_other_type() -> tensor<bf16> {
  // expected-error @+1 {{needs a result of type tensor<f32>, got 'tensor<bf16>'}}
  %y = model.scalar "apply" : tensor<bf16>
  return %y : tensor<bf16>
}

// -----

// A slot has no dimensions.
func.func @scalar_c2_with_a_dimension() -> tensor<2xf32, #model.dims<a>> {
  // expected-error @+1 {{needs a result of type tensor<f32>}}
  %y = model.scalar "apply" : tensor<2xf32, #model.dims<a>>
  return %y : tensor<2xf32, #model.dims<a>>
}
