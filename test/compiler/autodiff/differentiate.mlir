// RUN: espalier-opt %s -differentiate | FileCheck %s
// What the joint function looks like. That its numbers are right is checked in differentiate_test.cpp.

!x = tensor<2x3xf32, #model.dims<seq, hidden>>
!w = tensor<3x4xf32, #model.dims<hidden, ffn>>
!y = tensor<2x4xf32, #model.dims<seq, ffn>>

// Forward, cotangent, backward; an accumulator argument for the parameter.
// CHECK-LABEL: func.func @linear(
// CHECK-SAME: %[[X:[a-z0-9]+]]: {{[^{]*}}{model.name = "x", model.role = "stream"}
// CHECK-SAME: %[[W:[a-z0-9]+]]: {{[^{]*}}{model.name = "w", model.role = "parameter"}
// CHECK-SAME: %[[SUM:[a-z0-9]+]]: tensor<3x4xf32, {{[^{]*}}{model.name = "w", model.role = "accumulator"})
// CHECK-SAME: -> ({{[^{]*}}{model.name = "y", model.role = "stream"}
// CHECK-SAME: {model.name = "x", model.role = "cotangent"}
// CHECK-SAME: tensor<3x4xf32, {{[^{]*}}{model.name = "w", model.role = "accumulator"})
// CHECK: %[[Y:.+]] = model.contract %[[X]], %[[W]]
// CHECK: %[[G:.+]] = model.cotangent %[[Y]]
// CHECK: %[[DX:.+]] = model.contract %[[G]], %[[W]]
// CHECK: %[[DW:.+]] = model.contract %[[X]], %[[G]]
// CHECK: %[[NEXT:.+]] = model.accumulate %[[SUM]], %[[DW]]
// CHECK: return %[[Y]], %[[DX]], %[[NEXT]]
func.func @linear(%x: !x {model.role = "stream", model.name = "x"}, %w: !w {model.role = "parameter", model.name = "w"})
    -> (!y {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %y = model.contract %x, %w : (!x, !w) -> !y
  return %y : !y
}

// A value with two uses gets one sum.
// CHECK-LABEL: func.func @two_uses(
// CHECK: %[[G:.+]] = model.cotangent
// CHECK: %[[A:.+]] = model.mul %[[G]]
// CHECK: model.add %[[G]], %[[A]]
func.func @two_uses(%x: !x {model.role = "stream", model.name = "x"})
    -> (!x {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %e = model.exp %x : (!x) -> !x
  %y = model.add %x, %e : (!x, !x) -> !x
  return %y : !x
}

// Nothing depends on the parameter: its gradient is zero, not absent.
// CHECK-LABEL: func.func @unused_parameter(
// CHECK: %[[ZERO:.+]] = model.constant 0.0
// CHECK: %[[WHOLE:.+]] = model.broadcast %[[ZERO]]
// CHECK: model.accumulate %{{.+}}, %[[WHOLE]]
func.func @unused_parameter(%x: !x {model.role = "stream", model.name = "x"},
                            %w: !w {model.role = "parameter", model.name = "w"})
    -> (!x {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %y = model.neg %x : (!x) -> !x
  return %y : !x
}

// A parameter in bf16 has its gradient in f32, straight from the product.
// CHECK-LABEL: func.func @narrow_parameter(
// CHECK: %[[DW:.+]] = model.contract {{.*}} -> tensor<3x4xf32,
// CHECK: model.accumulate %{{.+}}, %[[DW]]
func.func @narrow_parameter(%x: tensor<2x3xbf16, #model.dims<seq, hidden>> {model.role = "input", model.name = "x"},
                            %w: tensor<3x4xbf16, #model.dims<hidden, ffn>> {model.role = "parameter", model.name = "w"})
    -> (tensor<2x4xbf16, #model.dims<seq, ffn>> {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %y = model.contract %x, %w : (tensor<2x3xbf16, #model.dims<seq, hidden>>, tensor<3x4xbf16, #model.dims<hidden, ffn>>)
    -> tensor<2x4xbf16, #model.dims<seq, ffn>>
  return %y : tensor<2x4xbf16, #model.dims<seq, ffn>>
}

// Not a segment: left alone.
// CHECK-LABEL: func.func @other(
// CHECK-NOT: model.cotangent
func.func @other(%x: !x) -> !x {
  %y = model.neg %x : (!x) -> !x
  return %y : !x
}
