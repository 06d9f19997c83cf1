// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// A number without dimensions.

// The number is printed with all its digits.
// CHECK-LABEL: func.func @constant(
// CHECK: model.constant 2.500000e+00 : tensor<f32>
func.func @constant() -> tensor<f32> {
  %y = model.constant 2.5 : tensor<f32>
  return %y : tensor<f32>
}
