// RUN: espalier-opt --build-transfers --assign-stages --expand-schedule %S/inputs/two_stages.mlir | FileCheck %s
// RUN: espalier-opt --build-transfers --assign-stages --expand-schedule %S/inputs/generation.mlir | FileCheck %s --check-prefix=GENERATION

// 1F1B: the first stage runs two forwards ahead, then alternates a forward and a backward, as a block of two rounds.
// A RUN waits for its inputs before it starts, and sends its results after it.
// CHECK: exec.list "train_step"
// CHECK-NEXT: exec.block rounds 1 advance 0
// CHECK-NEXT: exec.start_transfers [#exec.flight<transfer = "set", call = 3, slots = []>, #exec.flight<transfer = "tok"
// CHECK-NEXT: exec.wait_transfers
// CHECK-NEXT: exec.run "forward" {calls = 3 : i64, first = array<i64>, first_call = 0 : i64, micro_batch = 0 : i64
// CHECK-NEXT: exec.start_transfers [#exec.flight<transfer = "out", call = 2, slots
// CHECK-NEXT: exec.wait_transfers
// CHECK-NEXT: exec.run "forward" {{.*}}micro_batch = 1 : i64
// CHECK-NEXT: exec.start_transfers [#exec.flight<transfer = "out", call = 2, micro_batch = 1{{.*}}transfer = "dout", call = 2, slots
// CHECK-NEXT: exec.wait_transfers [#exec.flight<transfer = "dout", call = 2>]
// The first backward overwrites the gradients of bucket 0, and later ones add to them.
// CHECK-NEXT: exec.run "backward" {backwards, calls = 3 : i64, first = array<i64: 0>
// CHECK: exec.block rounds 2 advance 1
// CHECK-NEXT: exec.wait_transfers
// CHECK-NEXT: exec.run "forward" {{.*}}micro_batch = 2 : i64, slots = array<i64: 2, 2, 0, 0, 0>
// CHECK-NEXT: exec.start_transfers
// CHECK-NEXT: exec.wait_transfers
// CHECK-NEXT: exec.run "backward" {{.*}}first = array<i64>{{.*}}micro_batch = 1 : i64

// The backward of the last micro-batch is split after each layer, so that its gradients are scattered beside the next
// layer.
// CHECK: exec.run "backward" {backwards, calls = 1 : i64{{.*}}first_call = 2 : i64, micro_batch = 3 : i64
// CHECK-NEXT: exec.start_transfers [#exec.flight<transfer = "block.decayed.scatter", call = 2
// CHECK-NEXT: exec.run "backward" {backwards, calls = 1 : i64{{.*}}first_call = 1 : i64, micro_batch = 3 : i64
// CHECK-NEXT: exec.start_transfers [#exec.flight<transfer = "block.decayed.scatter", call = 1
// CHECK-NEXT: exec.wait_transfers
// CHECK-NEXT: exec.start_transfers [#exec.flight<transfer = "agree", call = 3
// CHECK: exec.run "update"
// CHECK-NEXT: exec.start_transfers [#exec.flight<transfer = "block.decayed.gather", call = 1

// Evaluation is the forward of one micro-batch.
// CHECK: exec.list "evaluate"
// CHECK-COUNT-1: exec.run "evaluate"
// CHECK-NOT: exec.run

// The last stage runs each backward right after its forward.
// CHECK: exec.stage
// CHECK: exec.list "train_step"
// CHECK: exec.run "forward" {{.*}}micro_batch = 0 : i64
// CHECK-NEXT: exec.run "backward" {{.*}}micro_batch = 0 : i64
// CHECK: exec.block rounds 2 advance 1
// CHECK: exec.run "forward" {{.*}}micro_batch = 1 : i64
// CHECK: exec.run "backward" {{.*}}micro_batch = 1 : i64

// Generation: a stage copies its inputs, receives the stream of the preceding stage, and runs once. Then it sends the
// stream, or copies the logits to the host.
// GENERATION: exec.list "prefill"
// GENERATION-NEXT: exec.block rounds 1 advance 0
// GENERATION-NEXT: exec.start_transfers [#exec.flight<transfer = "tok.prefill", call = 0, slots = []>]
// GENERATION-NEXT: exec.wait_transfers [#exec.flight<transfer = "tok.prefill", call = 0>]
// GENERATION-NEXT: exec.run "prefill" {calls = 3 : i64
// GENERATION-NEXT: exec.start_transfers [#exec.flight<transfer = "out.prefill", call = 2
// GENERATION-NEXT: exec.wait_transfers
// GENERATION: exec.list "decode"
// GENERATION: exec.run "decode" {calls = 3 : i64
// GENERATION: exec.stage
// GENERATION: exec.list "prefill"
// GENERATION-NEXT: exec.block
// GENERATION-NEXT: exec.start_transfers [#exec.flight<transfer = "tok.prefill", call = 0, slots = []>, #exec.flight<transfer = "in.prefill", call = 0
// GENERATION: exec.list "decode"
// GENERATION: exec.run "decode" {calls = 2 : i64
// GENERATION-NEXT: exec.start_transfers [#exec.flight<transfer = "logits.decode", call = 1, slots = []>]
// GENERATION-NEXT: exec.wait_transfers [#exec.flight<transfer = "logits.decode", call = 1>]
