// RUN: espalier-opt %s -split-input-file -differentiate | FileCheck %s
// Sizes: batch 2, seq 3, hidden 4, ffn 5, vocab 7.

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<2x3x5xf32, #model.dims<batch, seq, ffn>>
!up = tensor<4x5xf32, #model.dims<hidden, ffn>>

// A segment gets one accumulator argument per parameter. After its original results, it also returns the gradient of
// its stream and the new accumulators.
// CHECK-LABEL: func.func @product(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {model.name = "x", model.role = "stream"}
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<4x5xf32, #model.dims<hidden, ffn>> {model.name = "w", model.role = "parameter"}
// CHECK-SAME: %[[ACC:[a-z0-9]+]]: tensor<4x5xf32, #model.dims<hidden, ffn>> {model.name = "w", model.role = "accumulator"}
// CHECK-SAME: -> (tensor<2x3x5xf32, #model.dims<batch, seq, ffn>> {model.name = "y", model.role = "stream"}
// CHECK-SAME: tensor<2x3x4xf32, #model.dims<batch, seq, hidden>> {model.name = "x", model.role = "cotangent"}
// CHECK-SAME: tensor<4x5xf32, #model.dims<hidden, ffn>> {model.name = "w", model.role = "accumulator"})
// CHECK: %[[Y:.*]] = model.contract %[[X]], %[[W]]
// CHECK: %[[DY:.*]] = model.cotangent %[[Y]]
// CHECK: %[[DX:.*]] = model.contract %[[DY]], %[[W]]
// CHECK: %[[DW:.*]] = model.contract %[[X]], %[[DY]]
// CHECK: %[[NEW:.*]] = model.accumulate %[[ACC]], %[[DW]]
// CHECK: return %[[Y]], %[[DX]], %[[NEW]]
func.func @product(%x: !stream {model.role = "stream", model.name = "x"},
                   %w: !up {model.role = "parameter", model.name = "w"})
    -> (!wide {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %y = model.contract %x, %w : (!stream, !up) -> !wide
  return %y : !wide
}

// -----

!stream = tensor<2x3x4xbf16, #model.dims<batch, seq, hidden>>
!wide = tensor<2x3x5xbf16, #model.dims<batch, seq, ffn>>
!up = tensor<4x5xbf16, #model.dims<hidden, ffn>>

// The gradient of a micro-batch is f32. The accumulator has the type of the module's gradients.
// CHECK-LABEL: func.func @half(
// CHECK-SAME: %[[ACC:[a-z0-9]+]]: tensor<4x5xbf16, #model.dims<hidden, ffn>> {model.name = "w", model.role = "accumulator"}
// CHECK: %[[DW:.*]] = model.contract {{.*}} -> tensor<4x5xf32, #model.dims<hidden, ffn>>
// CHECK: model.accumulate %[[ACC]], %[[DW]] : (tensor<4x5xbf16, {{.*}}>, tensor<4x5xf32, {{.*}}>) -> tensor<4x5xbf16,
module attributes {model.gradient_type = bf16} {
  func.func @half(%x: !stream {model.role = "stream", model.name = "x"},
                  %w: !up {model.role = "parameter", model.name = "w"})
      -> (!wide {model.role = "stream", model.name = "y"}) attributes {model.segment} {
    %y = model.contract %x, %w : (!stream, !up) -> !wide
    return %y : !wide
  }
}

// -----

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>

// The contributions of all uses of a value are summed.
// CHECK-LABEL: func.func @uses(
// CHECK-SAME: %[[X:[a-z0-9]+]]:
// CHECK: %[[E:.*]] = model.exp %[[X]]
// CHECK: %[[Y:.*]] = model.mul %[[E]], %[[X]]
// CHECK: %[[DY:.*]] = model.cotangent %[[Y]]
// CHECK: %[[DE:.*]] = model.mul %[[DY]], %[[X]]
// CHECK: %[[BY_MUL:.*]] = model.mul %[[DY]], %[[E]]
// CHECK: %[[BY_EXP:.*]] = model.mul %[[DE]], %[[E]]
// CHECK: %[[DX:.*]] = model.add %[[BY_MUL]], %[[BY_EXP]]
// CHECK: return %[[Y]], %[[DX]]
func.func @uses(%x: !stream {model.role = "stream", model.name = "x"})
    -> (!stream {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %e = model.exp %x : (!stream) -> !stream
  %y = model.mul %e, %x : (!stream, !stream) -> !stream
  return %y : !stream
}

// -----

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!vector = tensor<4xf32, #model.dims<hidden>>

// A bias is broadcast along batch and seq in forward, so its gradient is a sum over both.
// CHECK-LABEL: func.func @bias(
// CHECK: %[[DY:.*]] = model.cotangent
// CHECK: %[[DB:.*]] = model.reduce_sum %[[DY]] : (tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>) -> tensor<4xf32, #model.dims<hidden>>
// CHECK: %[[NEW:.*]] = model.accumulate %{{.*}}, %[[DB]]
// CHECK: return %{{.*}}, %[[DY]], %[[NEW]]
func.func @bias(%x: !stream {model.role = "stream", model.name = "x"},
                %b: !vector {model.role = "parameter", model.name = "b"})
    -> (!stream {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %y = model.add %x, %b : (!stream, !vector) -> !stream
  return %y : !stream
}

// -----

!stream = tensor<2x3x4xbf16, #model.dims<batch, seq, hidden>>
!wide = tensor<2x3x5xbf16, #model.dims<batch, seq, ffn>>
!master = tensor<4x5xf32, #model.dims<hidden, ffn>>
!compute = tensor<4x5xbf16, #model.dims<hidden, ffn>>

// The gradient of a parameter is f32, although the product reads the parameter in its compute type. The gradient of the
// stream has the stream's type.
// CHECK-LABEL: func.func @storage_types(
// CHECK: %[[DY:.*]] = model.cotangent
// CHECK: model.contract %[[DY]], %{{.*}} -> tensor<2x3x4xbf16, #model.dims<batch, seq, hidden>>
// CHECK: %[[DW:.*]] = model.contract %{{.*}}, %[[DY]] : {{.*}} -> tensor<4x5xf32, #model.dims<hidden, ffn>>
// CHECK: model.accumulate %{{.*}}, %[[DW]]
func.func @storage_types(%x: !stream {model.role = "stream", model.name = "x"},
                         %w: !master {model.role = "parameter", model.name = "w"})
    -> (!wide {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %c = model.convert %w : (!master) -> !compute
  %y = model.contract %x, %c : (!stream, !compute) -> !wide
  return %y : !wide
}

// -----

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!vector = tensor<4xf32, #model.dims<hidden>>

// If the result does not depend on a parameter, the parameter's gradient is zero and not missing, so that accumulators
// keep their order.
// CHECK-LABEL: func.func @unused(
// CHECK: model.cotangent
// CHECK: %[[ZERO:.*]] = model.constant 0.000000e+00 : tensor<f32>
// CHECK: %[[NONE:.*]] = model.broadcast %[[ZERO]] : (tensor<f32>) -> tensor<4xf32, #model.dims<hidden>>
// CHECK: model.accumulate %{{.*}}, %[[NONE]]
func.func @unused(%x: !stream {model.role = "stream", model.name = "x"},
                  %b: !vector {model.role = "parameter", model.name = "b"})
    -> (!stream {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %y = model.neg %x : (!stream) -> !stream
  return %y : !stream
}

// -----

!rows = tensor<2x3xf32, #model.dims<batch, seq>>
!logits = tensor<2x3x7xf32, #model.dims<batch, seq, vocab>>
!labels = tensor<2x3xi32, #model.dims<batch, seq>>

// The last segment returns the loss, a scalar, so its cotangent is a scalar. A cotangent has no dimensions as long as
// it is constant along them. The maximum has no gradient, because it only shifts the exponents. Inputs and statistics
// have no gradient.
// CHECK-LABEL: func.func @loss(
// CHECK-NOT: "accumulator"
// CHECK: %[[MAX:.*]] = model.reduce_max
// CHECK: %[[POWERS:.*]] = model.exp
// CHECK: %[[SUM:.*]] = model.reduce_sum %[[POWERS]]
// CHECK: %[[DLOSS:.*]] = model.cotangent %{{.*}} : (tensor<f32>) -> tensor<f32>
// CHECK: %[[MINUS:.*]] = model.neg %[[DLOSS]] : (tensor<f32>) -> tensor<f32>
// CHECK: %[[BY_PICK:.*]] = model.pick_grad %{{.*}}, %[[MINUS]], %{{.*}} : (tensor<2x3xi32, #model.dims<batch, seq>>, tensor<f32>, tensor<2x3x7xf32
// CHECK: %[[SHARE:.*]] = model.div %[[DLOSS]], %[[SUM]]
// CHECK: %[[BY_SUM:.*]] = model.mul %[[SHARE]], %[[POWERS]]
// CHECK: %[[DX:.*]] = model.add %[[BY_PICK]], %[[BY_SUM]]
// CHECK: return %{{.*}}, %{{.*}}, %[[DX]] : tensor<f32>, tensor<f32>, tensor<2x3x7xf32
func.func @loss(%x: !logits {model.role = "stream", model.name = "x"},
                %labels: !labels {model.role = "input", model.name = "labels"},
                %sum: tensor<f32> {model.role = "statistic", model.name = "loss_sum"})
    -> (tensor<f32> {model.role = "loss", model.name = "loss"},
        tensor<f32> {model.role = "statistic", model.name = "loss_sum"}) attributes {model.segment} {
  %max = model.reduce_max %x : (!logits) -> !rows
  %shifted = model.sub %x, %max : (!logits, !rows) -> !logits
  %powers = model.exp %shifted : (!logits) -> !logits
  %total = model.reduce_sum %powers : (!logits) -> !rows
  %log = model.log %total : (!rows) -> !rows
  %norm = model.add %log, %max : (!rows, !rows) -> !rows
  %picked = model.pick %x, %labels : (!logits, !labels) -> !rows
  %losses = model.sub %norm, %picked : (!rows, !rows) -> !rows
  %loss = model.reduce_sum %losses : (!rows) -> tensor<f32>
  %statistic = model.accumulate %sum, %loss : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %loss, %statistic : tensor<f32>, tensor<f32>
}

// -----

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!table = tensor<7x4xf32, #model.dims<vocab, hidden>>
!tokens = tensor<2x3xi32, #model.dims<batch, seq>>

// The first segment has no incoming stream, so it returns no stream gradient, only its accumulators.
// CHECK-LABEL: func.func @embedding(
// CHECK-SAME: -> (tensor<2x3x4xf32, {{[^,]*, [^,]*, [^,]*}} {model.name = "y", model.role = "stream"}, tensor<7x4xf32, {{[^,]*, [^,]*}} {model.name = "table", model.role = "accumulator"})
// CHECK: %[[DY:.*]] = model.cotangent
// CHECK: %[[ROWS:.*]] = model.embed_grad %{{.*}}, %[[DY]]
// CHECK: model.accumulate %{{.*}}, %[[ROWS]]
func.func @embedding(%table: !table {model.role = "parameter", model.name = "table"},
                     %tokens: !tokens {model.role = "input", model.name = "tokens"})
    -> (!stream {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %y = model.embed %table, %tokens : (!table, !tokens) -> !stream
  return %y : !stream
}

// -----

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>

// A function that is not a segment (the optimizer) does not change.
// CHECK-LABEL: func.func @optimizer(
// CHECK-NOT: model.cotangent
// CHECK: return
func.func @optimizer(%x: !stream {model.role = "parameter", model.name = "x"}) -> !stream {
  %y = model.neg %x : (!stream) -> !stream
  return %y : !stream
}

// -----

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>

// A loss beside the stream has a separate cotangent.
// CHECK-LABEL: func.func @loss_beside_the_stream(
// CHECK-SAME: %[[X:[a-z0-9]+]]:
// CHECK: %[[Y:.*]] = model.exp %[[X]]
// CHECK: %[[L:.*]] = model.reduce_sum %[[Y]]
// CHECK: %[[DY:.*]] = model.cotangent %[[Y]]
// CHECK: %[[DL:.*]] = model.cotangent %[[L]]
// CHECK: %[[SUM:.*]] = model.add %[[DY]], %[[DL]]
// CHECK: %[[DX:.*]] = model.mul %[[SUM]], %[[Y]]
// CHECK: return %[[Y]], %[[L]], %[[DX]]
func.func @loss_beside_the_stream(%x: !stream {model.role = "stream", model.name = "x"})
    -> (!stream {model.role = "stream", model.name = "y"}, tensor<f32> {model.role = "loss", model.name = "l"})
    attributes {model.segment} {
  %y = model.exp %x : (!stream) -> !stream
  %l = model.reduce_sum %y : (!stream) -> tensor<f32>
  return %y, %l : !stream, tensor<f32>
}

// -----

!stream = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<2x3x5xf32, #model.dims<batch, seq, ffn>>
!up = tensor<4x5xf32, #model.dims<hidden, ffn>>

// A frozen parameter has no accumulator. The gradient of the stream still reads the parameter.
// CHECK-LABEL: func.func @frozen(
// CHECK-NOT: accumulator
// CHECK: %[[DY:.*]] = model.cotangent
// CHECK: %[[DX:.*]] = model.contract %[[DY]]
// CHECK-NOT: model.accumulate
// CHECK: return %{{.*}}, %[[DX]] :
func.func @frozen(%x: !stream {model.role = "stream", model.name = "x"},
                  %w: !up {model.role = "parameter", model.name = "w", model.frozen})
    -> (!wide {model.role = "stream", model.name = "y"}) attributes {model.segment} {
  %y = model.contract %x, %w : (!stream, !up) -> !wide
  return %y : !wide
}
