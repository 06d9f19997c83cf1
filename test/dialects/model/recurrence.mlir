// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// Linear recurrences of Mamba-2 and of the delta rule.

// A delta rule whose heads share keys in groups.
// CHECK-LABEL: func.func @grouped(
// CHECK: model.recurrence %{{.*}} {delta} : (tensor<2x5x2x4xf32
func.func @grouped(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  %y = model.recurrence %q, %k, %v, %d, %b {delta} : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
  return %y : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// Decays of columns, and documents.
// CHECK-LABEL: func.func @columns(
// CHECK: model.recurrence %{{.*}} : (tensor<2x5x2x4xf32
func.func @columns(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, %d: tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>>, %b: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, %from: tensor<2x5xi32, #model.dims<batch, seq>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>> {
  %y = model.recurrence %q, %k, %v, %d, %b, %from : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>, tensor<2x5x2x3x4xf32, #model.dims<batch, seq, heads, group, key>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, group>>, tensor<2x5xi32, #model.dims<batch, seq>>) -> tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
  return %y : tensor<2x5x2x3x6xf32, #model.dims<batch, seq, heads, group, value>>
}

// Each head has keys of its own.
// CHECK-LABEL: func.func @heads(
// CHECK: model.recurrence
func.func @heads(%q: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %k: tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, %v: tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, value>>, %d: tensor<2x5x2xf32, #model.dims<batch, seq, heads>>, %b: tensor<2x5x2xf32, #model.dims<batch, seq, heads>>) -> tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, value>> {
  %y = model.recurrence %q, %k, %v, %d, %b : (tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x4xf32, #model.dims<batch, seq, heads, key>>, tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, value>>, tensor<2x5x2xf32, #model.dims<batch, seq, heads>>, tensor<2x5x2xf32, #model.dims<batch, seq, heads>>) -> tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, value>>
  return %y : tensor<2x5x2x3xf32, #model.dims<batch, seq, heads, value>>
}
