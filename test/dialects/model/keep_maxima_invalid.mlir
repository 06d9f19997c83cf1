// RUN: espalier-opt --split-input-file --verify-diagnostics %s

func.func @keep_maxima_c1_other_dimension(%m: tensor<3xf32, #model.dims<seq>>, %x: tensor<2x3x4x5xf32, #model.dims<batch, seq, heads, group>>) -> tensor<3xf32, #model.dims<seq>> {
  // expected-error @+1 {{needs f32 maxima with the third dimension of x}}
  %y = model.keep_maxima %m, %x : (tensor<3xf32, #model.dims<seq>>, tensor<2x3x4x5xf32, #model.dims<batch, seq, heads, group>>) -> tensor<3xf32, #model.dims<seq>>
  return %y : tensor<3xf32, #model.dims<seq>>
}

// -----

func.func @keep_maxima_c1_bf16(%m: tensor<4xbf16, #model.dims<heads>>, %x: tensor<2x3x4xbf16, #model.dims<batch, seq, heads>>) -> tensor<4xbf16, #model.dims<heads>> {
  // expected-error @+1 {{needs f32 maxima with the third dimension of x}}
  %y = model.keep_maxima %m, %x : (tensor<4xbf16, #model.dims<heads>>, tensor<2x3x4xbf16, #model.dims<batch, seq, heads>>) -> tensor<4xbf16, #model.dims<heads>>
  return %y : tensor<4xbf16, #model.dims<heads>>
}
