// RUN: espalier-opt %s -split-input-file -verify-diagnostics
// Errors of the verifier of causal_conv_grad.

// The cotangent has fewer positions.
func.func @causal_conv_grad_c1(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %g: tensor<2x4x6xf32, #model.dims<batch, seq, channels>>) -> tensor<6x4xf32, #model.dims<channels, taps>> {
  // expected-error @+1 {{needs x [batch, seq, channels..] and a cotangent with its dimensions}}
  %y = model.causal_conv_grad %x, %g : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2x4x6xf32, #model.dims<batch, seq, channels>>) -> tensor<6x4xf32, #model.dims<channels, taps>>
  return %y : tensor<6x4xf32, #model.dims<channels, taps>>
}

// -----

// The gradient has half precision.
func.func @causal_conv_grad_c2_type(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %g: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>) -> tensor<6x4xbf16, #model.dims<channels, taps>> {
  // expected-error @+1 {{needs a result of type f32}}
  %y = model.causal_conv_grad %x, %g : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2x5x6xf32, #model.dims<batch, seq, channels>>) -> tensor<6x4xbf16, #model.dims<channels, taps>>
  return %y : tensor<6x4xbf16, #model.dims<channels, taps>>
}

// -----

// The gradient has one tap.
func.func @causal_conv_grad_c2_taps(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %g: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>) -> tensor<6x1xf32, #model.dims<channels, taps>> {
  // expected-error @+1 {{needs a weight with the channels of x, then 2 to 8 taps}}
  %y = model.causal_conv_grad %x, %g : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2x5x6xf32, #model.dims<batch, seq, channels>>) -> tensor<6x1xf32, #model.dims<channels, taps>>
  return %y : tensor<6x1xf32, #model.dims<channels, taps>>
}

// -----

// visible_from has one number for each sample.
func.func @causal_conv_grad_c3(%x: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %g: tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, %from: tensor<2xi32, #model.dims<batch>>) -> tensor<6x4xf32, #model.dims<channels, taps>> {
  // expected-error @+1 {{needs i32 visible_from with the first two dimensions of its sequences}}
  %y = model.causal_conv_grad %x, %g, %from : (tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2x5x6xf32, #model.dims<batch, seq, channels>>, tensor<2xi32, #model.dims<batch>>) -> tensor<6x4xf32, #model.dims<channels, taps>>
  return %y : tensor<6x4xf32, #model.dims<channels, taps>>
}
