// RUN: espalier-opt %s -split-input-file -differentiate -propagate-shardings -insert-reshards -localize -cse \
// RUN:   -split-phases | FileCheck %s
// Sizes: batch 4, seq 6, hidden 10, ffn 14, vocab 22.

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// Without recompute, the inputs of backward's products (the tanh between the products) and sums over devices are saved.
// The last tanh is used only by element-wise ops, so it is recomputed, which is cheaper.
// CHECK-LABEL: func.func @block.none.forward(
// CHECK-SAME: model.role = "stream"}, {{.*}} model.role = "parameter"}, {{.*}} model.role = "parameter"})
// CHECK-SAME: -> ({{.*}} {model.name = "z", model.role = "stream"}, tensor<4x6x7xf32, {{.*}} {model.name = "saved.0", model.role = "saved"}, tensor<4x6x10xf32, {{.*}} {model.name = "saved.1", model.role = "saved"})
// CHECK: %[[T:.*]] = model.tanh
// CHECK: %[[Y:.*]] = dist.all_reduce
// CHECK: %[[Z:.*]] = model.tanh %[[Y]]
// CHECK-NEXT: return %[[Z]], %[[T]], %[[Y]]
// CHECK-LABEL: func.func @block.none.backward(
// CHECK-SAME: %[[T:[a-z0-9]+]]: {{[^%]*}} {model.name = "saved.0", model.role = "saved"}
// CHECK-SAME: %[[Y:[a-z0-9]+]]: {{[^%]*}} {model.name = "saved.1", model.role = "saved"}
// CHECK-SAME: %[[DZ:[a-z0-9]+]]: {{[^%]*}} {model.name = "out", model.role = "cotangent"}
// CHECK-SAME: -> ({{.*}} {model.name = "x", model.role = "cotangent"}, {{.*}} {model.name = "up", model.role = "accumulator"}, {{.*}} {model.name = "down", model.role = "accumulator"})
// CHECK-NEXT: %[[Z:.*]] = model.tanh %[[Y]]
// CHECK-NOT: model.tanh
// CHECK: %[[D:.*]] = model.mul %[[DZ]], %{{.*}}
// CHECK: model.contract %[[T]], %[[D]]
// CHECK: dist.all_reduce
// CHECK-NOT: dist.all_reduce

// Selective recompute saves products and sums over devices, and recomputes element-wise ops.
// CHECK-LABEL: func.func @block.selective.forward(
// CHECK: %[[U:.*]] = model.contract
// CHECK: %[[Y:.*]] = dist.all_reduce
// CHECK: %[[Z:.*]] = model.tanh %[[Y]]
// CHECK-NEXT: return %[[Z]], %[[U]], %[[Y]]
// CHECK-LABEL: func.func @block.selective.backward(
// CHECK-SAME: %[[U:[a-z0-9]+]]: {{[^%]*}} {model.name = "saved.0", model.role = "saved"}
// CHECK-SAME: %[[Y:[a-z0-9]+]]: {{[^%]*}} {model.name = "saved.1", model.role = "saved"}
// CHECK-NEXT: model.tanh %[[U]]
// CHECK-NEXT: model.tanh %[[Y]]
// CHECK: dist.all_reduce
// CHECK-NOT: dist.all_reduce

// Full recompute saves nothing: backward begins with all of forward, including its communication.
// CHECK-LABEL: func.func @block.full.forward(
// CHECK-NOT: "saved"
// CHECK-LABEL: func.func @block.full.backward(
// CHECK-NOT: "saved"
// CHECK: %[[U:.*]] = model.contract
// CHECK-NEXT: %[[T:.*]] = model.tanh %[[U]]
// CHECK-NEXT: %[[PART:.*]] = model.contract %[[T]],
// CHECK-NEXT: %[[Y:.*]] = dist.all_reduce %[[PART]]
// CHECK-NEXT: model.tanh %[[Y]]

// Evaluation is forward without saved values, one function for all policies.
// CHECK-LABEL: func.func @block.evaluate(
// CHECK-NOT: "saved"
// CHECK: %[[Z:.*]] = model.tanh
// CHECK: %[[Z:.*]] = model.tanh
// CHECK-NEXT: return %[[Z]] :
// CHECK-NOT: func.func
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}} {
  func.func @block(%x: !stream {model.role = "stream", model.name = "x"},
                   %up: !up {model.role = "parameter", model.name = "up"},
                   %down: !down {model.role = "parameter", model.name = "down"})
      -> (!stream {model.role = "stream", model.name = "z"})
      attributes {model.segment, model.recompute = ["none", "selective", "full"]} {
    %u = model.contract %x, %up : (!stream, !up) -> !wide
    %t = model.tanh %u : (!wide) -> !wide
    %y = model.contract %t, %down : (!wide, !down) -> !stream
    %z = model.tanh %y : (!stream) -> !stream
    return %z : !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// With dist.keep_collectives, full recompute also saves sums over devices. So backward repeats neither the
// communication nor the product before it.
// CHECK-LABEL: func.func @kept.full.forward(
// CHECK: %[[Y:.*]] = dist.all_reduce
// CHECK: return %{{.*}}, %[[Y]]
// CHECK-LABEL: func.func @kept.full.backward(
// CHECK-SAME: %[[Y:[a-z0-9]+]]: tensor<4x6x10xf32, {{[^%]*}} {model.name = "saved.0", model.role = "saved"}
// CHECK-NOT: = dist.
// CHECK: model.contract
// CHECK-NEXT: model.tanh
// CHECK-NEXT: model.tanh %[[Y]]
// CHECK: dist.all_reduce
// CHECK-NOT: dist.all_reduce
// CHECK-LABEL: func.func @kept.evaluate(
// CHECK-NOT: "saved"
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}, dist.keep_collectives} {
  func.func @kept(%x: !stream {model.role = "stream", model.name = "x"},
                  %up: !up {model.role = "parameter", model.name = "up"},
                  %down: !down {model.role = "parameter", model.name = "down"})
      -> (!stream {model.role = "stream", model.name = "z"})
      attributes {model.segment, model.recompute = ["full"]} {
    %u = model.contract %x, %up : (!stream, !up) -> !wide
    %t = model.tanh %u : (!wide) -> !wide
    %y = model.contract %t, %down : (!wide, !down) -> !stream
    %z = model.tanh %y : (!stream) -> !stream
    return %z : !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>

// Gathers are repeated under every policy. Under sequence parallelism, the shard is saved (here the sharded tanh, which
// a product of backward reads gathered). A segment without policies recomputes nothing.
// CHECK-LABEL: func.func @gathered.none.forward(
// CHECK-SAME: -> ({{.*}} "stream"}, tensor<4x3x10xf32, {{.*}} {model.name = "saved.0", model.role = "saved"})
// CHECK: %[[T:.*]] = model.tanh
// CHECK: dist.all_gather %[[T]]
// CHECK: return %{{.*}}, %[[T]]
// CHECK-LABEL: func.func @gathered.none.backward(
// CHECK-SAME: %[[T:[a-z0-9]+]]: {{[^%]*}} {model.name = "saved.0", model.role = "saved"}
// CHECK: %[[WHOLE:.*]] = dist.all_gather %[[T]] over ["tp"] dim 1
// CHECK: model.contract %[[WHOLE]],
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}, dist.sequence_parallel} {
  func.func @gathered(%x: !stream {model.role = "stream", model.name = "x"},
                      %up: !up {model.role = "parameter", model.name = "up"})
      -> (!wide {model.role = "stream", model.name = "u"}) attributes {model.segment} {
    %t = model.tanh %x : (!stream) -> !stream
    %u = model.contract %t, %up : (!stream, !up) -> !wide
    return %u : !wide
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!head = tensor<22x10xf32, #model.dims<vocab, hidden>>
!logits = tensor<4x6x22xf32, #model.dims<batch, seq, vocab>>

// The last segment: forward returns its statistics but not the loss. The step's loss scale replaces the cotangent. So
// forward continues to the first product of backward, and saves the gradient of the logits instead of the logits.
// CHECK-LABEL: func.func @head.none.forward(
// CHECK-SAME: {{.*}} {dist.sharding = #dist.sharding<[]>, model.name = "loss_sum", model.role = "statistic"}
// CHECK-SAME: -> (tensor<f32> {model.name = "loss_sum", model.role = "statistic"}, tensor<4x6x22xf32, {{.*}} "saved"})
// CHECK: %[[SUM:.*]] = model.accumulate
// CHECK: %[[DLOSS:.*]] = model.scalar "loss_scale" : tensor<f32>
// CHECK: %[[DLOGITS:.*]] = model.mul %[[DLOSS]],
// CHECK: return %[[SUM]], %[[DLOGITS]] :
// CHECK-LABEL: func.func @head.none.backward(
// CHECK-SAME: %[[KEPT:[a-z0-9]+]]: {{[^%]*}} {model.name = "saved.0", model.role = "saved"}
// CHECK-NOT: "out"
// CHECK-NOT: model.mul
// CHECK: model.contract %[[KEPT]],
// CHECK-LABEL: func.func @head.evaluate(
// CHECK-SAME: -> (tensor<f32> {model.name = "loss_sum", model.role = "statistic"})
module {
  func.func @head(%x: !stream {model.role = "stream", model.name = "x"},
                  %w: !head {model.role = "parameter", model.name = "w"},
                  %sum: tensor<f32> {model.role = "statistic", model.name = "loss_sum"})
      -> (tensor<f32> {model.role = "loss", model.name = "loss"},
          tensor<f32> {model.role = "statistic", model.name = "loss_sum"}) attributes {model.segment} {
    %logits = model.contract %x, %w : (!stream, !head) -> !logits
    %powers = model.exp %logits : (!logits) -> !logits
    %loss = model.reduce_sum %powers : (!logits) -> tensor<f32>
    %new = model.accumulate %sum, %loss : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %loss, %new : tensor<f32>, tensor<f32>
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!bias = tensor<10xf32, #model.dims<hidden>>

// A gradient that does not depend on a cotangent still belongs to backward: zeros, not a saved value.
// CHECK-LABEL: func.func @unused.none.forward(
// CHECK-NOT: "accumulator"
// CHECK-LABEL: func.func @unused.none.backward(
// CHECK: %[[ZERO:.*]] = model.constant 0.000000e+00
// CHECK: %[[NONE:.*]] = model.broadcast %[[ZERO]]
// CHECK: %[[NEW:.*]] = model.accumulate %{{.*}}, %[[NONE]]
// CHECK: return %{{.*}}, %[[NEW]]
module {
  func.func @unused(%x: !stream {model.role = "stream", model.name = "x"},
                    %b: !bias {model.role = "parameter", model.name = "b"})
      -> (!stream {model.role = "stream", model.name = "z"}) attributes {model.segment} {
    %z = model.tanh %x : (!stream) -> !stream
    return %z : !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// Under full recompute, the input is saved as a slice of the sequence, and backward gathers it first. Under the policy
// none, backward reads the whole stream.
// CHECK-LABEL: func.func @block.none.forward(
// CHECK-NOT: dist.slice %
// CHECK-LABEL: func.func @block.full.forward(
// CHECK-SAME: %[[X:[a-z0-9]+]]: {{[^%]*}}model.name = "x", model.role = "stream"}
// CHECK-SAME: tensor<4x3x10xf32, {{[^{]*}} {model.name = "saved.0", model.role = "saved"})
// CHECK: %[[S:.*]] = dist.slice %[[X]] over ["tp"] dim 1
// CHECK-NEXT: return %{{.*}}, %[[S]]
// CHECK-LABEL: func.func @block.full.backward(
// CHECK-SAME: %[[S:[a-z0-9]+]]: tensor<4x3x10xf32, {{[^{]*}} {model.name = "saved.0", model.role = "saved"}
// CHECK-NOT: "stream"
// CHECK-NEXT: %[[X:.*]] = dist.all_gather %[[S]] over ["tp"] dim 1
// CHECK: model.contract %[[X]],
// CHECK-LABEL: func.func @block.evaluate(
// CHECK-NOT: dist.slice %
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}, dist.slice_inputs = ["tp"]} {
  func.func @block(%x: !stream {model.role = "stream", model.name = "x"},
                   %up: !up {model.role = "parameter", model.name = "up"},
                   %down: !down {model.role = "parameter", model.name = "down"})
      -> (!stream {model.role = "stream", model.name = "z"})
      attributes {model.segment, model.recompute = ["none", "full"]} {
    %u = model.contract %x, %up : (!stream, !up) -> !wide
    %t = model.tanh %u : (!wide) -> !wide
    %y = model.contract %t, %down : (!wide, !down) -> !stream
    return %y : !stream
  }
}

// -----

!stream = tensor<4x5x10xf32, #model.dims<batch, seq, hidden>>

// If the devices do not divide the sequence, the slice is along the hidden dimension.
// CHECK-LABEL: func.func @block.full.forward(
// CHECK: dist.slice %{{.*}} over ["tp"] dim 2
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}, dist.slice_inputs = ["tp"]} {
  func.func @block(%x: !stream {model.role = "stream", model.name = "x"})
      -> (!stream {model.role = "stream", model.name = "z"})
      attributes {model.segment, model.recompute = ["full"]} {
    %t = model.tanh %x : (!stream) -> !stream
    return %t : !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>

// A loss beside the stream: forward adds it to its statistic, and backward uses the loss scale as its cotangent.
// Evaluation does not compute it.
// CHECK-LABEL: func.func @beside.none.forward(
// CHECK-SAME: -> ({{.*}} {model.name = "y", model.role = "stream"}, {{.*}} {model.name = "loss_sum", model.role = "statistic"}
// CHECK: model.accumulate
// CHECK-LABEL: func.func @beside.none.backward(
// CHECK-SAME: %[[DY:[a-z0-9]+]]: {{[^%]*}} {model.name = "out", model.role = "cotangent"}
// CHECK: %[[DL:.*]] = model.scalar "loss_scale"
// CHECK: model.add %[[DY]], %[[DL]]
// CHECK-LABEL: func.func @beside.evaluate(
// CHECK-NOT: statistic
// CHECK-NOT: model.reduce_sum
// CHECK: return
module {
  func.func @beside(%x: !stream {model.role = "stream", model.name = "x"},
                    %sum: tensor<f32> {model.role = "statistic", model.name = "loss_sum"})
      -> (!stream {model.role = "stream", model.name = "y"}, tensor<f32> {model.role = "loss", model.name = "l"},
          tensor<f32> {model.role = "statistic", model.name = "loss_sum"}) attributes {model.segment} {
    %y = model.exp %x : (!stream) -> !stream
    %l = model.reduce_sum %y : (!stream) -> tensor<f32>
    %new = model.accumulate %sum, %l {always} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %y, %l, %new : !stream, tensor<f32>, tensor<f32>
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!heads = tensor<4x6x3x5xf32, #model.dims<batch, seq, kv_heads, head_dim>>
!rows = tensor<4x6x3xf32, #model.dims<batch, seq, kv_heads>>
!q = tensor<10x3x5xf32, #model.dims<hidden, kv_heads, head_dim>>

// Evaluation has no dropout: dropout of the incoming stream and of an intermediate value is removed, and attention has
// rate 0.
// CHECK-LABEL: func.func @drop.none.forward(
// CHECK-COUNT-2: model.dropout
// CHECK: model.attention {{.*}}rate = 5.000000e-01
// CHECK-LABEL: func.func @drop.evaluate(
// CHECK-SAME: %[[X:[a-z0-9]+]]: {{[^%]*}}model.name = "x", model.role = "stream"}
// CHECK-NOT: model.dropout
// CHECK: %[[E:.*]] = model.exp %[[X]]
// CHECK-NOT: model.dropout
// CHECK: %[[Q:.*]] = model.contract %[[E]],
// CHECK: model.attention %[[Q]], {{.*}}rate = 0.000000e+00
// CHECK-NOT: model.dropout
// CHECK: return
module {
  func.func @drop(%x: !stream {model.role = "stream", model.name = "x"},
                  %w: !q {model.role = "parameter", model.name = "w"})
      -> (!stream {model.role = "stream", model.name = "z"}) attributes {model.segment} {
    %d = model.dropout %x {rate = 5.0e-01 : f64, id = 0} : (!stream) -> !stream
    %e = model.exp %d : (!stream) -> !stream
    %f = model.dropout %e {rate = 5.0e-01 : f64, id = 1} : (!stream) -> !stream
    %q = model.contract %f, %w : (!stream, !q) -> !heads
    %o, %l = model.attention %q, %q, %q {causal, id = 2, rate = 5.0e-01 : f64, scale = 1.0 : f64} : (!heads, !heads, !heads) -> (!heads, !rows)
    %z = model.contract %o, %w : (!heads, !q) -> !stream
    return %z : !stream
  }
}
// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!row = tensor<10xf32, #model.dims<hidden>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// With model.split_backward, products for weight gradients are a separate phase. It reads the stream, and values that
// forward and backward save for it. The bias gradient is a sum over values that backward has, so it stays in backward.
// CHECK-LABEL: func.func @apart.none.forward(
// CHECK-SAME: {model.name = "saved.0", model.role = "saved_for_weights"}
// CHECK-LABEL: func.func @apart.none.backward(
// CHECK-SAME: {model.name = "saved.0", model.role = "saved_for_weights"}
// CHECK-SAME: -> ({{.*}} {model.name = "x", model.role = "cotangent"}, {{.*}} {model.name = "bias", model.role = "accumulator"}, {{.*}} {model.name = "passed.0", model.role = "saved_by_backward"}, {{.*}} {model.name = "passed.1", model.role = "saved_by_backward"})
// CHECK-LABEL: func.func @apart.none.weight(
// CHECK-SAME: %[[T:[a-z0-9]+]]: {{[^%]*}} {model.name = "saved.0", model.role = "saved_for_weights"}
// CHECK-SAME: %[[DY:[a-z0-9]+]]: {{[^%]*}} {model.name = "passed.0", model.role = "saved_by_backward"}
// CHECK-SAME: %[[DU:[a-z0-9]+]]: {{[^%]*}} {model.name = "passed.1", model.role = "saved_by_backward"}
// CHECK-SAME: -> ({{.*}} {model.name = "up", model.role = "accumulator"}, {{.*}} {model.name = "down", model.role = "accumulator"})
// CHECK-DAG: model.contract %[[T]], %[[DY]]
// CHECK-DAG: model.contract %{{.*}}, %[[DU]]
// CHECK-NOT: model.tanh
// CHECK: return
module {
  func.func @apart(%x: !stream {model.role = "stream", model.name = "x"},
                   %up: !up {model.role = "parameter", model.name = "up"},
                   %down: !down {model.role = "parameter", model.name = "down"},
                   %bias: !row {model.role = "parameter", model.name = "bias"})
      -> (!stream {model.role = "stream", model.name = "z"}) attributes {model.segment, model.split_backward} {
    %u = model.contract %x, %up : (!stream, !up) -> !wide
    %t = model.tanh %u : (!wide) -> !wide
    %y = model.contract %t, %down : (!wide, !down) -> !stream
    %z = model.add %y, %bias : (!stream, !row) -> !stream
    return %z : !stream
  }
}
