// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Places columns side by side, and takes them apart.

// CHECK-LABEL: func.func @concat(
// CHECK: model.concat %{{.*}}, %{{.*}} : (tensor<2x5x3x4xf32, {{.*}}>, tensor<2x5x2xf32, {{.*}}>) -> tensor<2x5x3x6xf32, {{.*}}>
func.func @concat(%a: tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, a>>, %b: tensor<2x5x2xf32, #model.dims<batch, seq, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>> {
  %y = model.concat %a, %b : (tensor<2x5x3x4xf32, #model.dims<batch, seq, heads, a>>, tensor<2x5x2xf32, #model.dims<batch, seq, b>>) -> tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
  return %y : tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>
}

// CHECK-LABEL: func.func @columns(
// CHECK: model.columns %{{.*}} {first = 4 : i64} : (tensor<2x5x3x6xf32, {{.*}}>) -> tensor<2x5x2xf32, {{.*}}>
func.func @columns(%x: tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>) -> tensor<2x5x2xf32, #model.dims<batch, seq, b>> {
  %y = model.columns %x {first = 4 : i64} : (tensor<2x5x3x6xf32, #model.dims<batch, seq, heads, ab>>) -> tensor<2x5x2xf32, #model.dims<batch, seq, b>>
  return %y : tensor<2x5x2xf32, #model.dims<batch, seq, b>>
}
