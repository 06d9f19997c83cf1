// RUN: espalier-opt %s -split-input-file -propagate-shardings -insert-reshards | FileCheck %s
// Sizes: batch 4, seq 6, hidden 10, ffn 14, vocab 22.

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// A partial sum is reduced once, right after its producer, for all of its uses.
// CHECK-LABEL: func.func @once(
// CHECK-NOT: dist.operands
// CHECK: %[[PART:.*]] = model.contract
// CHECK-NEXT: %[[SUM:.*]] = dist.reshard %[[PART]] from <[{}, {}, {}], partial = {tp}> to <[{}, {}, {}]>
// CHECK-NEXT: model.neg
// CHECK-NEXT: model.exp %[[SUM]]
// CHECK-NEXT: model.tanh %[[SUM]]
// CHECK-NOT: dist.operands
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}} {
  func.func @once(%x: !wide, %w: !down {model.role = "parameter"}) -> (!wide, !stream, !stream) {
    %d = model.contract %x, %w : (!wide, !down) -> !stream
    %other = model.neg %x : (!wide) -> !wide
    %e = model.exp %d : (!stream) -> !stream
    %t = model.tanh %d : (!stream) -> !stream
    return %other, %e, %t : !wide, !stream, !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// Values that are partial over the same axes are added before the reduction, so that one reshard is enough.
// CHECK-LABEL: func.func @added_first(
// CHECK: %[[D:.*]] = model.contract
// CHECK-NEXT: %[[E:.*]] = model.contract
// CHECK-NEXT: %[[SUM:.*]] = model.add %[[D]], %[[E]]
// CHECK-NEXT: %[[WHOLE:.*]] = dist.reshard %[[SUM]] from <[{}, {}, {}], partial = {tp}> to <[{}, {}, {}]>
// CHECK-NEXT: return {{.*}} %[[WHOLE]] :
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}} {
  func.func @added_first(%x: !wide, %a: !down {model.role = "parameter"}, %b: !down {model.role = "parameter"})
      -> (!stream {model.role = "stream"}) {
    %d = model.contract %x, %a : (!wide, !down) -> !stream
    %e = model.contract %x, %b : (!wide, !down) -> !stream
    %sum = model.add %d, %e : (!stream, !stream) -> !stream
    return %sum : !stream
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!up = tensor<10x14xf32, #model.dims<hidden, ffn>>

// The stream is gathered once for all products in forward. It is gathered again before its first use in backward, so
// that the gathered value is not kept.
// CHECK-LABEL: func.func @per_phase(
// CHECK-SAME: %[[X:[a-z0-9]+]]:
// CHECK: %[[N:.*]] = model.neg %[[X]]
// CHECK-NEXT: %[[WHOLE:.*]] = dist.reshard %[[N]] from <[{}, {tp}, {}]> to <[{}, {}, {}]>
// CHECK-NEXT: model.contract %[[WHOLE]], %{{.*}}
// CHECK-NEXT: model.contract %[[WHOLE]], %{{.*}}
// CHECK: %[[DY:.*]] = model.cotangent
// CHECK-NEXT: %[[TANH:.*]] = model.tanh %[[DY]]
// CHECK-NEXT: %[[AGAIN:.*]] = dist.reshard %[[N]] from <[{}, {tp}, {}]> to <[{}, {}, {}]>
// CHECK-NEXT: model.contract %[[AGAIN]], %[[DY]]
// CHECK-NEXT: model.contract %[[AGAIN]], %[[TANH]]
// CHECK-NOT: dist.reshard
// CHECK: return
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}, dist.sequence_parallel} {
  func.func @per_phase(%x: !stream {model.role = "stream"}, %a: !up {model.role = "parameter"},
                       %b: !up {model.role = "parameter"}, %acc_a: !up {model.role = "accumulator"},
                       %acc_b: !up {model.role = "accumulator"}) -> (!up, !up) {
    %n = model.neg %x : (!stream) -> !stream
    %u = model.contract %n, %a : (!stream, !up) -> !wide
    %v = model.contract %n, %b : (!stream, !up) -> !wide
    %y = model.mul %u, %v : (!wide, !wide) -> !wide
    %dy = model.cotangent %y : (!wide) -> !wide
    %dt = model.tanh %dy : (!wide) -> !wide
    %da = model.contract %n, %dy : (!stream, !wide) -> !up
    %db = model.contract %n, %dt : (!stream, !wide) -> !up
    %new_a = model.accumulate %acc_a, %da : (!up, !up) -> !up
    %new_b = model.accumulate %acc_b, %db : (!up, !up) -> !up
    return %new_a, %new_b : !up, !up
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!wide = tensor<4x6x14xf32, #model.dims<batch, seq, ffn>>
!down = tensor<14x10xf32, #model.dims<ffn, hidden>>

// A partial sum is resharded directly to the sharding of its dimensions. Under sequence parallelism this is the sharded
// sequence (a reduce-scatter). The only use that needs the unsharded value gathers it.
// CHECK-LABEL: func.func @to_its_place(
// CHECK: %[[PART:.*]] = model.contract
// CHECK-NEXT: %[[SUM:.*]] = dist.reshard %[[PART]] from <[{}, {}, {}], partial = {tp}> to <[{}, {tp}, {}]>
// CHECK-NEXT: model.exp %[[SUM]]
// CHECK-NEXT: %[[WHOLE:.*]] = dist.reshard %[[SUM]] from <[{}, {tp}, {}]> to <[{}, {}, {}]>
// CHECK-NEXT: model.contract %[[WHOLE]]
module attributes {dist.mesh = #dist.mesh<tp = 2>, dist.dims = {ffn = ["tp"]}, dist.sequence_parallel} {
  func.func @to_its_place(%x: !wide, %w: !down {model.role = "parameter"}) -> (!stream, !wide) {
    %d = model.contract %x, %w : (!wide, !down) -> !stream
    %e = model.exp %d : (!stream) -> !stream
    %u = model.contract %d, %w : (!stream, !down) -> !wide
    return %e, %u : !stream, !wide
  }
}

// -----

!stream = tensor<4x6x10xf32, #model.dims<batch, seq, hidden>>
!bias = tensor<10xf32, #model.dims<hidden>>

// Accumulators accept partial sums, because the sum over dp is computed at the end of the step.
// CHECK-LABEL: func.func @accumulator(
// CHECK-SAME: dist.sharding = #dist.sharding<[{}], partial = {dp}>
// CHECK: %[[SUM:.*]] = model.reduce_sum
// CHECK-NEXT: %[[NEW:.*]] = model.accumulate %{{.*}}, %[[SUM]]
// CHECK-NEXT: return {{.*}} %[[NEW]] :
module attributes {dist.mesh = #dist.mesh<dp = 2>, dist.dims = {batch = ["dp"]}} {
  func.func @accumulator(%dy: !stream {model.role = "cotangent"}, %db: !bias {model.role = "accumulator"})
      -> (!bias {model.role = "accumulator"}) {
    %sum = model.reduce_sum %dy : (!stream) -> !bias
    %new = model.accumulate %db, %sum : (!bias, !bias) -> !bias
    return %new : !bias
  }
}
