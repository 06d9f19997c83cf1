// RUN: espalier-opt --split-input-file --lay-out-regions %s | FileCheck %s

!x = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!ids = tensor<2x3xi32, #model.dims<batch, seq>>
!w = tensor<6x4xf32, #model.dims<ffn, hidden>>
!range = tensor<128xf32, #model.dims<element>>

// A parameter is a part of its bucket and a separate value. Its gradient refers to the bucket by number. Saved values
// are in the order of forward's results, each at a multiple of 64; backward reads them at the same offsets.
// CHECK-LABEL: func.func @block.none.forward
// CHECK-SAME: {exec.value = "stream", model.name = "x", model.role = "stream"}
// CHECK-SAME: {exec.offset = 64 : i64, exec.value = "positions"
// CHECK-SAME: {exec.offset = 1536 : i64, exec.value = "block.decayed.w"
// CHECK-SAME: -> ({{.*}}exec.offset = 0 : i64, exec.value = "block.none.saved.saved.0"
// CHECK-SAME: {exec.offset = 128 : i64, exec.value = "block.none.saved.saved.1"
// CHECK-LABEL: func.func @block.none.backward
// CHECK-SAME: {exec.offset = 128 : i64, exec.value = "block.none.saved.saved.1"
// CHECK-SAME: {exec.bucket = 4 : i64, exec.offset = 1024 : i64, exec.value = "block.decayed.w.gradient"
// The norm reads the sum of the whole bucket, of which a rank has its shard over dp.
// CHECK-LABEL: func.func @block.norm
// CHECK-SAME: {exec.offset = 512 : i64, exec.part = 2 : i64, exec.share = ["dp"], exec.value = "block.decayed.scattered"
// CHECK-SAME: {exec.offset = 2560 : i64, exec.value = "block.decayed.moment2"
// CHECK: exec.region "inputs" of "tokens" {bytes = 24 : i64, offset = 0 : i64}
// CHECK: exec.region "inputs" of "positions" {bytes = 24 : i64, offset = 64 : i64}
// CHECK: exec.region "inputs" of "loss_weights" {bytes = 24 : i64, offset = 192 : i64}
// CHECK-NOT: "visible_from"
// CHECK: exec.region "saved" of "block.none" {bytes = 192 : i64, offset = 0 : i64}
// CHECK: exec.region "stream_in" of "stream" {bytes = 96 : i64, offset = 0 : i64}
module {
  func.func @block.none.forward(%x: !x {model.role = "stream", model.name = "x"},
                                %ids: !ids {model.role = "input", model.name = "positions"},
                                %w: !w {model.role = "parameter", model.name = "w"})
      -> (!x {model.role = "saved", model.name = "saved.0"}, !ids {model.role = "saved", model.name = "saved.1"}) {
    return %x, %ids : !x, !ids
  }
  func.func @block.none.backward(%ids: !ids {model.role = "saved", model.name = "saved.1"},
                                 %dw: !w {model.role = "accumulator", model.name = "w"})
      -> (!w {model.role = "accumulator", model.name = "w"}) {
    return %dw : !w
  }
  func.func @block.norm(%g: !range {model.role = "accumulator", model.name = "block.decayed", exec.share = ["dp"]},
                        %m: !range {model.role = "state", model.name = "block.decayed.moment2"}) {
    return
  }
  exec.segment "block" attributes {gradient_bytes = 1024 : i64, parameter_bytes = 1024 : i64, state_bytes = 1024 : i64} {
    exec.bucket "block.decayed" attributes {decays, elements = 256 : i64, gradient_offset = 512 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 3 : i64, part_elements = 128 : i64, partial = ["dp"], share = ["dp"], state_offset = 2048 : i64, stored = f32, stored_offset = 1024 : i64} {
      exec.parameter "w" {first = 128 : i64, initializer = "zeros", local = !w, padded_shape = array<i64: 6, 4>, shape = array<i64: 6, 4>, sharding = #dist.sharding<[{ }, { }]>, stddev = 0.0 : f64}
    }
  }
}

// -----

!x = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!w = tensor<6x4xf32, #model.dims<ffn, hidden>>

// Values that are saved for weight gradients have separate regions, each with offsets from 0.
// CHECK-LABEL: func.func @block.none.forward
// CHECK-SAME: -> ({{.*}}exec.offset = 0 : i64, exec.value = "block.none.saved.saved.0"
// CHECK-SAME: {exec.offset = 0 : i64, exec.value = "block.none.saved.saved.1"
// CHECK-LABEL: func.func @block.none.weight
// CHECK-SAME: {exec.offset = 0 : i64, exec.value = "block.none.saved.saved.1"
// CHECK-SAME: {exec.offset = 0 : i64, exec.value = "block.none.saved.passed.0"
// CHECK: exec.region "saved" of "block.none" {bytes = 128 : i64, offset = 0 : i64}
// CHECK: exec.region "saved_by_backward" of "block.none" {bytes = 128 : i64, offset = 0 : i64}
// CHECK: exec.region "saved_for_weights" of "block.none" {bytes = 128 : i64, offset = 0 : i64}
module {
  func.func @block.none.forward(%x: !x {model.role = "stream", model.name = "x"}, %w: !w {model.role = "input", model.name = "tokens"})
      -> (!x {model.role = "saved", model.name = "saved.0"}, !w {model.role = "saved_for_weights", model.name = "saved.1"}) {
    return %x, %w : !x, !w
  }
  func.func @block.none.backward(%x: !x {model.role = "saved", model.name = "saved.0"})
      -> (!x {model.role = "saved_by_backward", model.name = "passed.0"}) {
    return %x : !x
  }
  func.func @block.none.weight(%w: !w {model.role = "saved_for_weights", model.name = "saved.1"},
                               %x: !x {model.role = "saved_by_backward", model.name = "passed.0"}) {
    return
  }
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
}

// -----

!x3 = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>
!x1 = tensor<2x1x4xf32, #model.dims<batch, seq, hidden>>
!ids3 = tensor<2x3xi32, #model.dims<batch, seq>>
!ids1 = tensor<2x1xi32, #model.dims<batch, seq>>
!cache = tensor<2x1x8x4xf32, #model.dims<batch, heads, context, head_dim>>
!logits = tensor<2x1x16xf32, #model.dims<batch, seq, vocab>>

// In generation, inputs and streams belong to a phase. The cache is resident, and both phases use the same one.
// CHECK-LABEL: func.func @block.prefill
// CHECK-SAME: {exec.value = "stream.prefill"
// CHECK-SAME: {exec.offset = 0 : i64, exec.value = "positions.prefill"
// CHECK-SAME: {exec.offset = 0 : i64, exec.value = "block.keys"
// CHECK-SAME: {exec.offset = 256 : i64, exec.value = "block.values"
// CHECK-LABEL: func.func @block.decode
// CHECK-SAME: {exec.value = "stream.decode"
// CHECK-SAME: {exec.offset = 64 : i64, exec.value = "positions.decode"
// CHECK-SAME: {exec.offset = 0 : i64, exec.value = "block.keys"
// CHECK-LABEL: func.func @head.decode
// CHECK-SAME: {exec.value = "logits", model.name = "logits"
// CHECK: exec.region "inputs" of "positions.prefill" {bytes = 24 : i64, offset = 0 : i64}
// CHECK-NEXT: exec.region "inputs" of "positions.decode" {bytes = 8 : i64, offset = 64 : i64}
// CHECK-NEXT: exec.region "stream_in" of "stream" {bytes = 96 : i64, offset = 0 : i64}
// CHECK-NEXT: exec.region "cache" of "block" {bytes = 512 : i64, offset = 0 : i64}
// CHECK-NEXT: exec.region "logits" of "logits" {bytes = 128 : i64, offset = 0 : i64}
module attributes {exec.mode = #exec.mode<generate>} {
  func.func @block.prefill(%x: !x3 {model.role = "stream", model.name = "x"}, %ids: !ids3 {model.role = "input", model.name = "positions"},
                           %k: !cache {model.role = "cache", model.name = "keys"}, %v: !cache {model.role = "cache", model.name = "values"}) {
    return
  }
  func.func @block.decode(%x: !x1 {model.role = "stream", model.name = "x"}, %ids: !ids1 {model.role = "input", model.name = "positions"},
                          %k: !cache {model.role = "cache", model.name = "keys"}) {
    return
  }
  func.func @head.decode(%l: !logits {model.role = "logits", model.name = "logits"}) {
    return
  }
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
  exec.segment "head" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
}

// -----

!ids = tensor<2x3xi32, #model.dims<batch, seq>>

// The first visible tokens have memory because a function reads them.
// CHECK-LABEL: func.func @block.none.forward
// CHECK-SAME: {exec.offset = 256 : i64, exec.value = "visible_from"
// CHECK: exec.region "inputs" of "visible_from" {bytes = 24 : i64, offset = 256 : i64}
module {
  func.func @block.none.forward(%from: !ids {model.role = "input", model.name = "visible_from"})
      -> (!ids {model.role = "saved", model.name = "saved.0"}) {
    return %from : !ids
  }
  exec.segment "block" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
}
