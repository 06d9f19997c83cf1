// RUN: espalier-opt %s -split-input-file -differentiate -verify-diagnostics

!rows = tensor<7x4xf32, #model.dims<vocab, hidden>>
!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!tokens = tensor<2x3xi32, #model.dims<batch, seq>>

// The pass refuses an op without a derivative if the result depends on it.
func.func @no_derivative(%x: !stream {model.role = "stream", model.name = "x"},
                         %tokens: !tokens {model.role = "input", model.name = "tokens"})
    -> (!rows {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  // expected-error@+1 {{'model.embed_grad' op has no derivative, but the loss depends on it}}
  %y = model.embed_grad %tokens, %x : (!tokens, !stream) -> !rows
  return %y : !rows
}

// -----

!rows = tensor<7x4xf32, #model.dims<vocab, hidden>>
!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!tokens = tensor<2x3xi32, #model.dims<batch, seq>>

// The pass accepts the same op if no differentiated value depends on it.
func.func @not_on_the_way(%x: !stream {model.role = "stream", model.name = "x"},
                          %tokens: !tokens {model.role = "input", model.name = "tokens"})
    -> (!stream {model.role = "stream", model.name = "y"}, !rows) attributes {model.segment} {
  %rows = model.embed_grad %tokens, %x : (!tokens, !stream) -> !rows
  %y = model.neg %x : (!stream) -> !stream
  return %y, %rows : !stream, !rows
}

// -----

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>

// Only the optimizer computes the norm of gradients, so a loss must not depend on it.
func.func @norm(%x: !stream {model.role = "stream", model.name = "x"})
    -> (tensor<f32> {model.role = "loss", model.name = "y"}) attributes {model.segment} {
  // expected-error@+1 {{'model.squared_norm' op has no derivative, but the loss depends on it}}
  %y = model.squared_norm %x {weight = 1.0} : (!stream) -> tensor<f32>
  return %y : tensor<f32>
}
