// RUN: espalier-opt %s | espalier-opt | FileCheck %s
// All slots of the scalars that a program may read.

// Slot `loss_scale`.
// CHECK-LABEL: func.func @loss_scale(
// CHECK: model.scalar "loss_scale" : tensor<f32>
func.func @loss_scale() -> tensor<f32> {
  %y = model.scalar "loss_scale" : tensor<f32>
  return %y : tensor<f32>
}

// Slot `learning_rate`.
// CHECK-LABEL: func.func @learning_rate(
// CHECK: model.scalar "learning_rate" : tensor<f32>
func.func @learning_rate() -> tensor<f32> {
  %y = model.scalar "learning_rate" : tensor<f32>
  return %y : tensor<f32>
}

// Slot `gradient_scale`.
// CHECK-LABEL: func.func @gradient_scale(
// CHECK: model.scalar "gradient_scale" : tensor<f32>
func.func @gradient_scale() -> tensor<f32> {
  %y = model.scalar "gradient_scale" : tensor<f32>
  return %y : tensor<f32>
}

// Slot `bias_correction1`.
// CHECK-LABEL: func.func @bias_correction1(
// CHECK: model.scalar "bias_correction1" : tensor<f32>
func.func @bias_correction1() -> tensor<f32> {
  %y = model.scalar "bias_correction1" : tensor<f32>
  return %y : tensor<f32>
}

// Slot `bias_correction2`.
// CHECK-LABEL: func.func @bias_correction2(
// CHECK: model.scalar "bias_correction2" : tensor<f32>
func.func @bias_correction2() -> tensor<f32> {
  %y = model.scalar "bias_correction2" : tensor<f32>
  return %y : tensor<f32>
}

// Slot `apply`.
// CHECK-LABEL: func.func @apply(
// CHECK: model.scalar "apply" : tensor<f32>
func.func @apply() -> tensor<f32> {
  %y = model.scalar "apply" : tensor<f32>
  return %y : tensor<f32>
}
