// RUN: espalier-opt --build-transfers %S/inputs/two_stages.mlir | FileCheck %s
// RUN: espalier-opt --build-transfers %S/inputs/generation.mlir | FileCheck %s --check-prefix=GENERATION

// The gradients of both replicas are reduce-scattered to shards of the bucket, and the updated shards are gathered.
// Streams and cotangents move between the stages on separate lines.
// CHECK: exec.queues = ["compute", "gradients", "out", "in", "din", "dout", "to_device", "to_host"]
// CHECK: exec.bucket "block.decayed" attributes {{.*}}gather = "block.decayed.gather"{{.*}}sums = ["block.decayed.scatter"]
// CHECK: exec.entry "train_step" {finds = ["parameters", "state"], micro_batches = 4 : i64, writes = ["parameters", "state"]}
// CHECK: exec.entry "evaluate" {finds = ["parameters"], micro_batches = 1 : i64, writes = []}
// CHECK: exec.value "stream" f32 x 24 {per_micro_batch}
// CHECK: exec.value "scalars" f32 x
// CHECK: exec.value "squared_norm" f32 x 1 {{{.*}}partial = ["pp", "dp"], resident, whole = "scalars"}
// CHECK: exec.value "block.decayed.part" f32 x 128 {resident, split = ["dp"]}
// CHECK: exec.value "block.decayed.w.gradient" f32 x 24 {additions = 1 : i64, partial = ["dp"], resident, whole = "block.decayed.gradient"}
// CHECK: exec.transfer "tok" "copy" on "to_device" {from = [#exec.buffer<region = "staged"
// CHECK: exec.transfer "out" "send" on "out" {from = [#exec.buffer<region = "stream_out", offset = 0, bytes = 96, value = "stream", layer = 1>]{{.*}}shift = 1 : i64, to = []}
// CHECK: exec.transfer "dout" "receive" on "dout" {from = [], line = 1 : i64{{.*}}shift = 1 : i64
// CHECK: exec.transfer "block.decayed.scatter" "reduce_scatter" on "gradients" {axes = ["dp"]

// Generation: prefill and decode move inputs, streams and logits with different sizes. There are no gradients and no
// scalars, and none of their queues. A phase in which no program reads rows does not copy them.
// GENERATION: exec.queues = ["compute", "out", "in", "to_device", "to_host"]
// GENERATION: exec.entry "prefill" {finds = ["parameters", "cache"], micro_batches = 1 : i64, writes = ["cache"]}
// GENERATION-NEXT: exec.entry "decode"
// GENERATION: exec.value "block.decayed.w" f32 x 24 {resident, whole = "block.decayed"}
// GENERATION-NEXT: exec.transfer "tok.prefill" {{.*}}value = "tokens.prefill">, {{.*}}value = "rows.prefill">], to
// GENERATION-NEXT: exec.transfer "out.prefill" "send" on "out" {{.*}}bytes = 96, value = "stream.prefill", layer = 1
// GENERATION-NEXT: exec.transfer "in.prefill" "receive" on "in"
// GENERATION-NEXT: exec.transfer "logits.prefill" "copy" on "to_host"
// GENERATION-NEXT: exec.transfer "tok.decode" {{.*}}from = [#exec.buffer<region = "staged", offset = 64, bytes = 8, value = "tokens.decode">], to
// GENERATION-NEXT: exec.transfer "out.decode" {{.*}}bytes = 24, value = "stream.decode"
// GENERATION-NEXT: exec.transfer "in.decode"
// GENERATION-NEXT: exec.transfer "logits.decode"
// GENERATION-NOT: exec.transfer
