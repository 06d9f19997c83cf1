// RUN: espalier-opt %s -split-input-file -overlap-communication | FileCheck %s

!x = tensor<4x6xf32, #model.dims<batch, hidden>>
!w = tensor<6x10xf32, #model.dims<hidden, ffn>>
!y = tensor<4x10xf32, #model.dims<batch, ffn>>

// The all-reduce starts right after its operand. The weight gradient, which preceded it, moves after the start and
// hides it.
// CHECK-LABEL: func.func @gradient_behind_the_sum
// CHECK: %[[DX:.*]] = model.contract %arg0, %arg1 : {{.*}} -> tensor<4x6xf32
// CHECK-NEXT: %[[SUM:.*]] = dist.all_reduce %[[DX]]
// CHECK-NEXT: %[[DW:.*]] = model.contract %arg2, %arg0
// CHECK-NEXT: %[[A:.*]] = model.accumulate %arg3, %[[DW]]
// CHECK-NEXT: %[[T:.*]] = model.tanh %[[SUM]]
// CHECK-NEXT: return %[[T]], %[[A]]
func.func @gradient_behind_the_sum(%dy: !y, %w: !w, %x: !x, %acc: !w) -> (!x, !w) {
  %dw = model.contract %x, %dy : (!x, !y) -> !w
  %a = model.accumulate %acc, %dw : (!w, !w) -> !w
  %dx = model.contract %dy, %w : (!y, !w) -> !x
  %sum = dist.all_reduce %dx over ["tp"] "sum" : (!x) -> !x
  %t = model.tanh %sum : (!x) -> !x
  return %t, %a : !x, !w
}

// -----

!x = tensor<4x6xf32, #model.dims<batch, hidden>>
!w = tensor<6x10xf32, #model.dims<hidden, ffn>>
!y = tensor<4x10xf32, #model.dims<batch, ffn>>

// Two all-reduces keep their order. The gradient between them does not move, because it already hides the first one.
// CHECK-LABEL: func.func @hides_already
// CHECK: dist.all_reduce %arg0
// CHECK-NEXT: model.contract %arg2, %arg1
// CHECK-NEXT: model.accumulate
// CHECK-NEXT: model.tanh
// CHECK-NEXT: dist.all_reduce
func.func @hides_already(%a: !x, %dy: !y, %x: !x, %acc: !w) -> (!x, !w) {
  %first = dist.all_reduce %a over ["tp"] "sum" : (!x) -> !x
  %dw = model.contract %x, %dy : (!x, !y) -> !w
  %sum = model.accumulate %acc, %dw : (!w, !w) -> !w
  %t = model.tanh %first : (!x) -> !x
  %second = dist.all_reduce %t over ["tp"] "sum" : (!x) -> !x
  return %second, %sum : !x, !w
}

// -----

!x = tensor<4x6xf32, #model.dims<batch, hidden>>
!half = tensor<2x6xf32, #model.dims<batch, hidden>>

// A gather that could start at once does not move before the all-reduce. Work that the result needs does not move.
// CHECK-LABEL: func.func @keeps_the_order
// CHECK: %[[T:.*]] = model.tanh %arg0
// CHECK-NEXT: %[[SUM:.*]] = dist.all_reduce %[[T]]
// CHECK-NEXT: %[[G:.*]] = dist.all_gather %arg1
// CHECK-NEXT: %[[E:.*]] = model.exp %[[SUM]]
// CHECK-NEXT: model.add %[[E]], %[[G]]
func.func @keeps_the_order(%x: !x, %part: !half) -> !x {
  %t = model.tanh %x : (!x) -> !x
  %sum = dist.all_reduce %t over ["tp"] "sum" : (!x) -> !x
  %e = model.exp %sum : (!x) -> !x
  %g = dist.all_gather %part over ["tp"] dim 0 : (!half) -> !x
  %y = model.add %e, %g : (!x, !x) -> !x
  return %y : !x
}

// -----

!x = tensor<4x6xf32, #model.dims<batch, hidden>>
!half = tensor<2x6xf32, #model.dims<batch, hidden>>
!w = tensor<6x10xf32, #model.dims<hidden, ffn>>
!y = tensor<4x10xf32, #model.dims<batch, ffn>>

// The gather starts first, because its result is needed before the result of the all-reduce.
// CHECK-LABEL: func.func @in_the_order_of_need
// CHECK: %[[DX:.*]] = model.contract
// CHECK-NEXT: %[[G:.*]] = dist.all_gather
// CHECK-NEXT: %[[SUM:.*]] = dist.all_reduce %[[DX]]
// CHECK-NEXT: model.contract %[[G]], %arg0
// CHECK-NEXT: model.accumulate
// CHECK-NEXT: model.tanh %[[SUM]]
func.func @in_the_order_of_need(%dy: !y, %w: !w, %part: !half, %acc: !w) -> (!x, !w) {
  %dx = model.contract %dy, %w : (!y, !w) -> !x
  %sum = dist.all_reduce %dx over ["tp"] "sum" : (!x) -> !x
  %x = dist.all_gather %part over ["tp"] dim 0 : (!half) -> !x
  %dw = model.contract %x, %dy : (!x, !y) -> !w
  %a = model.accumulate %acc, %dw : (!w, !w) -> !w
  %t = model.tanh %sum : (!x) -> !x
  return %t, %a : !x, !w
}
