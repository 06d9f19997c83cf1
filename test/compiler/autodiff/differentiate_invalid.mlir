// RUN: espalier-opt %s -differentiate -verify-diagnostics
// What differentiate refuses.

!x = tensor<2x3xf32, #model.dims<seq, hidden>>

// The norm of gradients belongs to the optimizer; a loss may not depend on it.
func.func @op_without_derivative(%x: !x {model.role = "stream", model.name = "x"})
    -> (tensor<f32> {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  // expected-error @+1 {{has no derivative, but the loss depends on it}}
  %y = model.squared_norm %x {weight = 1.0 : f64} : (!x) -> tensor<f32>
  return %y : tensor<f32>
}
