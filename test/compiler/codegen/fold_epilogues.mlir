// RUN: espalier-opt --fold-epilogues --split-input-file %s | FileCheck %s

!x = tensor<2x3x8xbf16, #model.dims<batch, seq, hidden>>
!w = tensor<8x16xbf16, #model.dims<hidden, ffn>>
!v = tensor<16x8xbf16, #model.dims<ffn, hidden>>
!b = tensor<16xbf16, #model.dims<ffn>>
!c = tensor<8xbf16, #model.dims<hidden>>
!y = tensor<2x3x16xbf16, #model.dims<batch, seq, ffn>>
!dw = tensor<8x16xf32, #model.dims<hidden, ffn>>
!db = tensor<16xf32, #model.dims<ffn>>

module attributes {exec.target = "cuda"} {
// Folds the bias and gelu. If another op reads gelu's operand, it becomes the second result of the product.
// CHECK-LABEL: func.func @bias_and_gelu
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<{{.*}}, %[[W:[a-z0-9]+]]: tensor<{{.*}}, %[[B:[a-z0-9]+]]: tensor
// CHECK-NEXT: %[[C:.*]], %[[KEPT:.*]] = exec.product "bias_gelu" %[[X]], %[[W]], %[[B]] :
// CHECK-NEXT: return %[[C]], %[[KEPT]]
func.func @bias_and_gelu(%x: !x, %w: !w, %b: !b) -> (!y, !y) {
  %p = model.contract %x, %w : (!x, !w) -> !y
  %s = model.add %p, %b : (!y, !b) -> !y
  %g = model.gelu %s : (!y) -> !y
  return %g, %s : !y, !y
}

// If no other op reads gelu's operand, the product does not save it.
// CHECK-LABEL: func.func @gelu_without_derivative
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<{{.*}}, %[[W:[a-z0-9]+]]: tensor<{{.*}}, %[[B:[a-z0-9]+]]: tensor
// CHECK-NEXT: %[[C:[^,]*]] = exec.product "bias_gelu" %[[X]], %[[W]], %[[B]] :
// CHECK-NEXT: return %[[C]]
func.func @gelu_without_derivative(%x: !x, %w: !w, %b: !b) -> !y {
  %p = model.contract %x, %w : (!x, !w) -> !y
  %s = model.add %p, %b : (!y, !b) -> !y
  %g = model.gelu %s : (!y) -> !y
  return %g : !y
}

// Folds the bias and the addition to the residual stream.
// CHECK-LABEL: func.func @bias_and_sum
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<{{.*}}, %[[Y:[a-z0-9]+]]: tensor<{{.*}}, %[[V:[a-z0-9]+]]: tensor<{{.*}}, %[[B:[a-z0-9]+]]: tensor
// CHECK-NEXT: %[[C:.*]] = exec.product "bias_add" %[[Y]], %[[V]], %[[B]], %[[X]] :
// CHECK-NEXT: return %[[C]]
func.func @bias_and_sum(%x: !x, %y: !y, %v: !v, %b: !c) -> !x {
  %p = model.contract %y, %v : (!y, !v) -> !x
  %s = model.add %p, %b : (!x, !c) -> !x
  %t = model.add %x, %s : (!x, !x) -> !x
  return %t : !x
}

// A sum that another op reads is not folded away, and neither is a sum that is converted to another type.
// CHECK-LABEL: func.func @sums_that_are_read
// CHECK: %[[S:.*]] = exec.product "bias"
// CHECK: %[[T:.*]] = model.add %{{.*}}, %[[S]]
// CHECK: %[[P:.*]] = model.contract
// CHECK: model.add %[[P]]
func.func @sums_that_are_read(%x: !x, %y: !y, %v: !v, %b: !c) -> (!x, !x, tensor<2x3x8xf32, #model.dims<batch, seq, hidden>>) {
  %p = model.contract %y, %v : (!y, !v) -> !x
  %s = model.add %p, %b : (!x, !c) -> !x
  %t = model.add %x, %s : (!x, !x) -> !x
  %q = model.contract %y, %v : (!y, !v) -> !x
  %u = model.add %q, %x : (!x, !x) -> tensor<2x3x8xf32, #model.dims<batch, seq, hidden>>
  return %s, %t, %u : !x, !x, tensor<2x3x8xf32, #model.dims<batch, seq, hidden>>
}

// If two products are added, the second one becomes the addend of the first.
// CHECK-LABEL: func.func @two_products
// CHECK: %[[Q:.*]] = model.contract
// CHECK-NEXT: %[[S:.*]] = exec.product "add" %{{.*}}, %{{.*}}, %[[Q]] :
// CHECK-NEXT: return %[[S]]
func.func @two_products(%y: !y, %v: !v, %z: !y, %u: !v) -> !x {
  %p = model.contract %y, %v : (!y, !v) -> !x
  %q = model.contract %z, %u : (!y, !v) -> !x
  %s = model.add %p, %q : (!x, !x) -> !x
  return %s : !x
}

// Folds the derivative of gelu into the product before it, and the bias gradient into the weight gradient.
// CHECK-LABEL: func.func @backward
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<{{.*}}, %[[DY:[a-z0-9]+]]: tensor<{{.*}}, %[[V:[a-z0-9]+]]: tensor<{{.*}}, %[[KEPT:[a-z0-9]+]]: tensor
// CHECK-NEXT: %[[DP:.*]] = exec.product "gelu_gradient" %[[DY]], %[[V]], %[[KEPT]] :
// CHECK-NEXT: %[[DW:.*]], %[[DB:.*]] = exec.product "bias_gradient" %[[X]], %[[DP]] :
// CHECK-NEXT: return %[[DB]], %[[DW]]
func.func @backward(%x: !x, %dy: !x, %v: !v, %kept: !y) -> (!db, !dw) {
  %p = model.contract %dy, %v : (!x, !v) -> !y
  %d = model.gelu_grad %p, %kept : (!y, !y) -> !y
  %db = model.reduce_sum %d : (!y) -> !db
  %dw = model.contract %x, %d : (!x, !y) -> !dw
  return %db, %dw : !db, !dw
}

// The library cannot sum rows of an operand that it transposes, and it has no gelu derivative for a product of depth 1.
// CHECK-LABEL: func.func @what_the_library_has_not
// CHECK-NOT: exec.product
func.func @what_the_library_has_not(%x: !x, %dt: tensor<16x2x3xbf16, #model.dims<ffn, batch, seq>>,
    %one: tensor<2x3x1xbf16, #model.dims<batch, seq, hidden>>, %u: tensor<1x16xbf16, #model.dims<hidden, ffn>>, %kept: !y)
    -> (!db, !dw, !y) {
  %db = model.reduce_sum %dt : (tensor<16x2x3xbf16, #model.dims<ffn, batch, seq>>) -> !db
  %dw = model.contract %x, %dt : (!x, tensor<16x2x3xbf16, #model.dims<ffn, batch, seq>>) -> !dw
  %p = model.contract %one, %u : (tensor<2x3x1xbf16, #model.dims<batch, seq, hidden>>, tensor<1x16xbf16, #model.dims<hidden, ffn>>) -> !y
  %d = model.gelu_grad %p, %kept : (!y, !y) -> !y
  return %db, %dw, %d : !db, !dw, !y
}

// Does not fold a sum if a kernel reads or makes its operand, because that kernel computes the sum without another
// read.
// CHECK-LABEL: func.func @sums_at_hand
// CHECK-NOT: exec.product
func.func @sums_at_hand(%x: !x, %dy: !y, %dz: !y) -> (!db, !dw, !y, !db, !dw) {
  %db = model.reduce_sum %dy : (!y) -> !db
  %dw = model.contract %x, %dy : (!x, !y) -> !dw
  %t = model.tanh %dy : (!y) -> !y
  %n = model.neg %dz : (!y) -> !y
  %dc = model.reduce_sum %n : (!y) -> !db
  %dv = model.contract %x, %n : (!x, !y) -> !dw
  return %db, %dw, %t, %dc, %dv : !db, !dw, !y, !db, !dw
}
}

// -----

!x = tensor<2x3x8xbf16, #model.dims<batch, seq, hidden>>
!w = tensor<8x16xbf16, #model.dims<hidden, ffn>>
!v = tensor<16x8xbf16, #model.dims<ffn, hidden>>
!b = tensor<16xbf16, #model.dims<ffn>>
!y = tensor<2x3x16xbf16, #model.dims<batch, seq, ffn>>
!dw = tensor<8x16xf32, #model.dims<hidden, ffn>>
!db = tensor<16xf32, #model.dims<ffn>>

// Does not fold the epilogues that the run file lists, but folds all others.
module attributes {exec.target = "cuda", exec.unfused_epilogues = ["bias_gelu", "gelu_gradient", "bias_gradient"]} {
// CHECK-LABEL: func.func @unfused
// CHECK: exec.product "bias"
// CHECK-NEXT: model.gelu
// CHECK-NOT: exec.product
func.func @unfused(%x: !x, %w: !w, %b: !b, %dy: !x, %v: !v) -> (!y, !y, !db, !dw) {
  %p = model.contract %x, %w : (!x, !w) -> !y
  %s = model.add %p, %b : (!y, !b) -> !y
  %g = model.gelu %s : (!y) -> !y
  %q = model.contract %dy, %v : (!x, !v) -> !y
  %d = model.gelu_grad %q, %s : (!y, !y) -> !y
  %db = model.reduce_sum %d : (!y) -> !db
  %dw = model.contract %x, %d : (!x, !y) -> !dw
  return %g, %s, %db, %dw : !y, !y, !db, !dw
}
}

// -----

!x = tensor<6x8xf32, #model.dims<seq, hidden>>
!w = tensor<8x16xf32, #model.dims<hidden, ffn>>
!b = tensor<16xf32, #model.dims<ffn>>
!y = tensor<6x16xf32, #model.dims<seq, ffn>>

module attributes {exec.target = "cuda"} {
// Does not fold gelu of f32.
// CHECK-LABEL: func.func @wide
// CHECK: exec.product "bias"
// CHECK-NEXT: model.gelu
func.func @wide(%x: !x, %w: !w, %b: !b) -> !y {
  %p = model.contract %x, %w : (!x, !w) -> !y
  %s = model.add %p, %b : (!y, !b) -> !y
  %g = model.gelu %s : (!y) -> !y
  return %g : !y
}
}

// -----

!x = tensor<2x3x8xbf16, #model.dims<batch, seq, hidden>>
!w = tensor<8x8xbf16, #model.dims<hidden, out>>
!b = tensor<8xbf16, #model.dims<out>>
!y = tensor<2x3x8xbf16, #model.dims<batch, seq, out>>

// On CPUs, only the bias is folded.
// CHECK-LABEL: func.func @on_cpu
// CHECK: %[[S:.*]] = exec.product "bias"
// CHECK-NEXT: %[[T:.*]] = model.add %{{.*}}, %[[S]]
// CHECK-NEXT: model.gelu %[[T]]
func.func @on_cpu(%x: !x, %w: !w, %b: !b, %z: !y) -> !y {
  %p = model.contract %x, %w : (!x, !w) -> !y
  %s = model.add %p, %b : (!y, !b) -> !y
  %t = model.add %z, %s : (!y, !y) -> !y
  %g = model.gelu %t : (!y) -> !y
  return %g : !y
}
