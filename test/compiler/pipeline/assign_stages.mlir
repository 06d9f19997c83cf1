// RUN: espalier-opt --build-transfers --assign-stages %S/inputs/two_stages.mlir | FileCheck %s
// RUN: espalier-opt --build-transfers --assign-stages %S/inputs/generation.mlir | FileCheck %s --check-prefix=GENERATION

// 1F1B: the first stage holds two micro-batches, the last one holds one. Saved values of the layers are side by side in
// one allocation. The second layer reads the first layer's result as its stream.
// CHECK: exec.stage attributes {{.*}}first_layer = 0 : i64, layers = 2 : i64}
// CHECK-NEXT: exec.lifetime "resident" slots 1
// CHECK: exec.lifetime "saved" slots 2 {rotates}
// CHECK: exec.place {{.*}}memory_class = "parameters"
// CHECK: exec.layer "embed" {{.*}}programs = {forward = @embed.none.forward}
// CHECK-NEXT: exec.layer "block.0" {{.*}}buckets = [#exec.use<bucket = 0, owner = 1, updates = 1>], layer = 1 : i64, programs = {backward = @block.none.backward, evaluate = @block.evaluate, forward = @block.none.forward, update = @block.update}
// CHECK-NEXT: exec.layer "block.1"
// CHECK-NEXT: exec.layer "step" {{.*}}layer = -1 : i64
// CHECK-NEXT: exec.chunk "layers" {calls = 3 : i64, first_call = 0 : i64
// CHECK: exec.exchange "tokens" {{.*}}entries = ["train_step", "evaluate"], filled_by_host, split = {{\[\["dp"\], \[\]\]}}
// CHECK: exec.memory "parameters" bytes 2048
// CHECK-NOT: exec.list
// CHECK: exec.stage attributes {{.*}}first_layer = 2 : i64, layers = 2 : i64}
// CHECK: exec.lifetime "saved" slots 1 {rotates}
// CHECK: exec.layer "head"

// Generation: two stream buffers alternate inside a stage, and a third one is sent. Each layer has a cache. Only the
// last stage has logits, which both entries copy to the host.
// GENERATION: exec.stage attributes {{.*}}first_layer = 0 : i64, layers = 2 : i64}
// GENERATION-NEXT: exec.lifetime "resident" slots 1
// GENERATION-NOT: exec.lifetime
// GENERATION: exec.layer "embed" {{.*}}region = "stream_out", place = 5>{{.*}}programs = {decode = @embed.decode, prefill = @embed.prefill}}
// GENERATION-NEXT: exec.layer "block.0" {{.*}}region = "cache", place = 2>, {{.*}}"stream_in", place = 5>, {{.*}}"stream_out", place = 4>
// GENERATION-NEXT: exec.layer "block.1" {{.*}}region = "cache", place = 3>, {{.*}}"stream_in", place = 4>, {{.*}}"stream_out", place = 6>
// GENERATION-NEXT: exec.chunk "layers" {calls = 3 : i64, first_call = 0 : i64, lifetimes = array<i64>}
// GENERATION-NEXT: exec.exchange "tokens.prefill" {{.*}}entries = ["prefill"], filled_by_host
// GENERATION: exec.memory "cache" bytes 384
// GENERATION-NOT: exec.memory "logits"
// GENERATION: exec.stage attributes {{.*}}first_layer = 2 : i64, layers = 1 : i64}
// GENERATION: exec.exchange "logits" {buffer = #exec.buffer<region = "results"{{.*}}entries = ["prefill", "decode"], split = []}
// GENERATION: exec.memory "logits" bytes 64
// GENERATION-NOT: exec.list
