// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// A recurrence that continues from a state.

// CHECK-LABEL: func.func @grouped(
// CHECK: model.carried_recurrence %{{.*}} {delta} : (tensor<2x5x2x4xf32
func.func @grouped(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %p: tensor<2x5xi32, #model.dims<batch, seq>>, %s: tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  %y:2 = model.carried_recurrence %q, %k, %v, %d, %b, %p, %s {delta} : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5xi32, #model.dims<batch, seq>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>) -> (tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x2x3x4x6xf32, #model.dims<batch, heads, group, key, value>>)
  return %y#0 : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}
