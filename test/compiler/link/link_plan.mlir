// RUN: espalier-opt --link-plan -o /dev/null %S/inputs/two_stages.mlir | FileCheck %s
// RUN: espalier-opt --link-plan -o /dev/null %S/inputs/generation.mlir | FileCheck %s --check-prefix=GENERATION

// Values that pass between programs come first, in the order in which programs list them. Then come the scalars, whose
// sums a rank holds in parts, and what buckets hold.
// CHECK: queues {
// CHECK-NEXT: name: "compute"
// CHECK: name: "gradients"
// CHECK: name: "dout"
// CHECK: values {
// CHECK-NEXT: name: "tokens"
// CHECK-NEXT: type: I32
// CHECK-NEXT: elements: 6
// CHECK-NEXT: per_micro_batch: true
// CHECK-NEXT: }
// CHECK-NEXT: values {
// CHECK-NEXT: name: "stream"
// CHECK-NEXT: elements: 24
// CHECK: name: "block.none.saved.saved.0"
// CHECK: name: "scalars"
// CHECK: name: "squared_norm"
// CHECK-NEXT: elements: 1
// CHECK-NEXT: partial: 3
// CHECK-NEXT: resident: true
// CHECK-NEXT: whole: [[SCALARS:[0-9]+]]
// CHECK: name: "block.decayed.part"
// CHECK-NEXT: elements: 128
// CHECK-NEXT: split: 2
// CHECK: name: "block.decayed.w.gradient"
// CHECK-NEXT: elements: 24
// CHECK-NEXT: partial: 2
// CHECK-NEXT: resident: true
// CHECK: additions: 1

// The gradients of both replicas are reduce-scattered to shards of the bucket, and the updated shards are gathered.
// Streams and cotangents move between the stages on separate lines.
// CHECK: transfers {  # on to_device
// CHECK-NEXT: name: "tok"
// CHECK-NEXT: kind: COPY
// CHECK: from {  # tokens in staged
// CHECK: transfers {  # on out
// CHECK-NEXT: name: "out"
// CHECK-NEXT: kind: SEND
// CHECK: shift: 1
// CHECK-NEXT: from {  # stream in stream_out
// CHECK-NEXT: region: 5
// CHECK-NEXT: bytes: 96
// CHECK-NEXT: value: 1
// CHECK-NEXT: layer: 1
// CHECK: transfers {  # on dout
// CHECK-NEXT: name: "dout"
// CHECK-NEXT: kind: RECEIVE
// CHECK: shift: 1
// CHECK-NEXT: line: 1
// CHECK-NEXT: to {  # cotangent in cotangent_out
// CHECK: transfers {  # on gradients
// CHECK: name: "block.decayed.scatter"
// CHECK-NEXT: kind: REDUCE_SCATTER
// CHECK: name: "block.decayed.gather"
// CHECK-NEXT: kind: ALL_GATHER

// CHECK: subprograms {
// CHECK-NEXT: name: "embed.none.forward"
// CHECK: buckets {
// CHECK-NEXT: name: "block.decayed"
// CHECK: {{^}}entries {
// CHECK-NEXT: name: "train_step"
// CHECK-NEXT: micro_batches: 4
// CHECK-NEXT: finds: [0, 2]
// CHECK-NEXT: writes: [0, 2]
// CHECK-NEXT: }
// CHECK-NEXT: entries {
// CHECK-NEXT: name: "evaluate"
// CHECK-NEXT: micro_batches: 1
// CHECK-NEXT: finds: [0]
// CHECK-NEXT: }

// Generation: prefill and decode move inputs, streams and logits with different sizes. There are no gradients and no
// scalars, and none of their queues. A phase in which no program reads rows does not copy them.
// GENERATION-NOT: name: "gradients"
// GENERATION: name: "block.keys0"
// GENERATION-NEXT: elements: 48
// GENERATION-NEXT: resident: true
// GENERATION: transfers {
// GENERATION-NEXT: name: "tok.prefill"
// GENERATION: from {  # tokens.prefill in staged
// GENERATION: from {  # rows.prefill in staged
// GENERATION: name: "out.prefill"
// GENERATION-NEXT: kind: SEND
// GENERATION: from {  # stream.prefill in stream_out
// GENERATION: bytes: 96
// GENERATION: layer: 1
// GENERATION: name: "in.prefill"
// GENERATION: name: "logits.prefill"
// GENERATION: name: "tok.decode"
// GENERATION: from {  # tokens.decode in staged
// GENERATION: offset: 64
// GENERATION-NEXT: bytes: 8
// GENERATION-NOT: # rows
// GENERATION: name: "out.decode"
// GENERATION: from {  # stream.decode in stream_out
// GENERATION: bytes: 24
// GENERATION: name: "logits.decode"
// GENERATION: {{^}}entries {
// GENERATION-NEXT: name: "prefill"
// GENERATION-NEXT: micro_batches: 1
// GENERATION-NEXT: finds: [0, 14]
// GENERATION-NEXT: writes: [14]
// GENERATION: name: "decode"
