// RUN: espalier-opt --fuse-kernels %s | FileCheck %s

// A norm is one kernel: the sum over the row is in one group with the element-wise ops that use it.
// CHECK-LABEL: func.func @block.none.forward
// CHECK: %[[Y:.*]] = exec.fused "row" split 2(%{{.*}}, %{{.*}})
// CHECK: model.reduce_sum
// CHECK: model.rsqrt
// CHECK-NOT: exec.fused
// CHECK: return %[[Y]]
func.func @block.none.forward(
    %x: tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "x"},
    %w: tensor<8xf32, #model.dims<hidden>> {model.role = "parameter", model.name = "w"})
    -> (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "y"}) {
  %squares = model.mul %x, %x : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  %sum = model.reduce_sum %squares : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x4xf32, #model.dims<batch, seq>>
  %scale = model.rsqrt %sum : (tensor<2x4xf32, #model.dims<batch, seq>>) -> tensor<2x4xf32, #model.dims<batch, seq>>
  %normal = model.mul %x, %scale : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<2x4xf32, #model.dims<batch, seq>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  %y = model.mul %normal, %w : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<8xf32, #model.dims<hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
}

// A sum over rows is a column kernel, which also computes its operand. The accumulation stays outside.
// CHECK-LABEL: func.func @block.none.backward
// CHECK: %[[DW:.*]] = exec.fused "column" split 2
// CHECK: model.mul
// CHECK: model.reduce_sum
// CHECK: exec.yield
// CHECK: model.accumulate %{{.*}}, %[[DW]]
func.func @block.none.backward(
    %x: tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "x"},
    %dy: tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "cotangent", model.name = "out"},
    %acc: tensor<8xf32, #model.dims<hidden>> {model.role = "accumulator", model.name = "w"})
    -> (tensor<8xf32, #model.dims<hidden>> {model.role = "accumulator", model.name = "w"}) {
  %product = model.mul %x, %dy : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  %dw = model.reduce_sum %product : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<8xf32, #model.dims<hidden>>
  %sum = model.accumulate %acc, %dw : (tensor<8xf32, #model.dims<hidden>>, tensor<8xf32, #model.dims<hidden>>) -> tensor<8xf32, #model.dims<hidden>>
  return %sum : tensor<8xf32, #model.dims<hidden>>
}

// A sum over rows joins a row kernel that reads or makes the same values. A value that only the sum reads is not
// stored.
// CHECK-LABEL: func.func @norm.none.backward
// CHECK: %[[OUT:.*]]:3 = exec.fused "column" split 2
// CHECK-DAG: model.reduce_sum %{{.*}} : ({{.*}}) -> tensor<2x4xf32
// CHECK-DAG: model.reduce_sum %{{.*}} : ({{.*}}) -> tensor<8xf32
// CHECK: exec.yield %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x8xf32
// CHECK-NOT: exec.fused
// CHECK: return %[[OUT]]#0
func.func @norm.none.backward(
    %x: tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "x"},
    %dy: tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "cotangent", model.name = "out"},
    %w: tensor<8xf32, #model.dims<hidden>> {model.role = "accumulator", model.name = "w"},
    %b: tensor<8xf32, #model.dims<hidden>> {model.role = "accumulator", model.name = "b"})
    -> (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "cotangent", model.name = "x"},
        tensor<8xf32, #model.dims<hidden>> {model.role = "accumulator", model.name = "w"},
        tensor<8xf32, #model.dims<hidden>> {model.role = "accumulator", model.name = "b"}) {
  %product = model.mul %x, %dy : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  %sum = model.reduce_sum %product : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x4xf32, #model.dims<batch, seq>>
  %dw = model.reduce_sum %product : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<8xf32, #model.dims<hidden>>
  %scaled = model.mul %x, %sum : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<2x4xf32, #model.dims<batch, seq>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  %dx = model.sub %dy, %scaled : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  %db = model.reduce_sum %dx : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>) -> tensor<8xf32, #model.dims<hidden>>
  %neww = model.accumulate %w, %dw : (tensor<8xf32, #model.dims<hidden>>, tensor<8xf32, #model.dims<hidden>>) -> tensor<8xf32, #model.dims<hidden>>
  %newb = model.accumulate %b, %db : (tensor<8xf32, #model.dims<hidden>>, tensor<8xf32, #model.dims<hidden>>) -> tensor<8xf32, #model.dims<hidden>>
  return %dx, %neww, %newb : tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<8xf32, #model.dims<hidden>>, tensor<8xf32, #model.dims<hidden>>
}

// A group without a reduction, with only full operands, is flat. Matrix products are not fused.
// CHECK-LABEL: func.func @mlp.none.forward
// CHECK: %[[WIDE:.*]] = model.contract
// CHECK: %[[ACTIVE:.*]] = exec.fused "flat" split 0(%[[WIDE]])
// CHECK: model.tanh
// CHECK: model.contract %[[ACTIVE]]
// CHECK-NOT: exec.fused
func.func @mlp.none.forward(
    %x: tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "x"},
    %w: tensor<8x6xf32, #model.dims<hidden, ffn>> {model.role = "parameter", model.name = "w"},
    %v: tensor<6x8xf32, #model.dims<ffn, hidden>> {model.role = "parameter", model.name = "v"})
    -> (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "y"}) {
  %wide = model.contract %x, %w : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<8x6xf32, #model.dims<hidden, ffn>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>
  %active = model.tanh %wide : (tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>
  %narrow = model.contract %active, %v : (tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>, tensor<6x8xf32, #model.dims<ffn, hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  %wider = model.contract %narrow, %w : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<8x6xf32, #model.dims<hidden, ffn>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>
  %y = model.contract %wider, %v : (tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>, tensor<6x8xf32, #model.dims<ffn, hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
}
