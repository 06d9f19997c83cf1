// RUN: espalier-opt --link-plan -o /dev/null %S/inputs/two_stages.mlir | FileCheck %s
// RUN: espalier-opt --link-plan -o /dev/null %S/inputs/generation.mlir | FileCheck %s --check-prefix=GENERATION

// 1F1B: the first stage holds two micro-batches, the last one holds one. Saved values of the layer calls are side by
// side in one allocation.
// CHECK: stages {
// CHECK-NEXT: arena_bytes:
// CHECK-NEXT: lifetimes {
// CHECK-NEXT: name: "resident"
// CHECK-NEXT: slots: 1
// CHECK-NEXT: }
// CHECK: name: "saved"
// CHECK-NEXT: slots: 2
// CHECK-NEXT: rotates: true
// CHECK: memory_class: "parameters"
// CHECK: calls {
// CHECK-NEXT: name: "embed"
// A layer call has its program by role: forward, backward, evaluate, norm, update.
// CHECK: calls {
// CHECK-NEXT: name: "block.0"
// CHECK-NEXT: layer: 1
// CHECK-NEXT: programs: [2, 3, 4, 0, 5, 0, 0, 0, 0, 0]
// CHECK: buckets {  # block.decayed
// CHECK-NEXT: owner: 1
// CHECK-NEXT: updates: true
// CHECK: name: "block.1"
// CHECK: name: "step"
// CHECK-NEXT: layer: -1
// CHECK: chunks {
// CHECK-NEXT: name: "layers"
// CHECK-NEXT: calls: 3
// CHECK-NEXT: lifetimes:
// CHECK: exchanges {
// CHECK-NEXT: name: "tokens"
// CHECK: filled_by_host: true
// CHECK-NEXT: split: [2, 0]
// CHECK-NEXT: entries: [0, 1]
// CHECK: memory {
// CHECK-NEXT: name: "parameters"
// CHECK-NEXT: bytes: 2048
// CHECK: layers: 2
// CHECK-NEXT: }
// CHECK-NEXT: stages {
// CHECK: name: "saved"
// CHECK-NEXT: slots: 1
// CHECK-NEXT: rotates: true
// CHECK: name: "head"
// CHECK: first_layer: 2
// CHECK-NEXT: layers: 2

// Generation: two stream buffers alternate inside a stage, and a third one is sent. Each layer call has a cache. Only
// the last stage has logits, which both entries copy to the host.
// GENERATION: stages {
// GENERATION: lifetimes {
// GENERATION-NEXT: name: "resident"
// GENERATION-NOT: lifetimes {
// GENERATION: calls {
// GENERATION-NEXT: name: "embed"
// GENERATION-NEXT: programs: [0, 0, 0, 0, 0, 0, 1, 4, 0, 0]
// GENERATION: bindings {  # stream_out
// GENERATION-NEXT: region: 5
// GENERATION-NEXT: place: 5
// GENERATION: name: "block.0"
// GENERATION: bindings {  # cache
// GENERATION-NEXT: region: 14
// GENERATION-NEXT: place: 2
// GENERATION: bindings {  # stream_in
// GENERATION-NEXT: region: 4
// GENERATION-NEXT: place: 5
// GENERATION: bindings {  # stream_out
// GENERATION-NEXT: region: 5
// GENERATION-NEXT: place: 4
// GENERATION: name: "block.1"
// GENERATION: bindings {  # cache
// GENERATION-NEXT: region: 14
// GENERATION-NEXT: place: 3
// GENERATION: bindings {  # stream_in
// GENERATION-NEXT: region: 4
// GENERATION-NEXT: place: 4
// GENERATION: bindings {  # stream_out
// GENERATION-NEXT: region: 5
// GENERATION-NEXT: place: 6
// GENERATION: chunks {
// GENERATION-NEXT: name: "layers"
// GENERATION-NEXT: calls: 3
// GENERATION-NEXT: }
// GENERATION: exchanges {
// GENERATION-NEXT: name: "tokens.prefill"
// GENERATION: filled_by_host: true
// GENERATION-NEXT: entries: [0]
// GENERATION: name: "cache"
// GENERATION-NEXT: bytes: 384
// GENERATION: stages {
// GENERATION: exchanges {
// GENERATION-NEXT: name: "logits"
// GENERATION: buffer {  # logits in results
// GENERATION: entries: [0, 1]
// GENERATION: memory {
// GENERATION: name: "logits"
// GENERATION-NEXT: bytes: 64
// GENERATION: first_layer: 2
// GENERATION-NEXT: layers: 1
