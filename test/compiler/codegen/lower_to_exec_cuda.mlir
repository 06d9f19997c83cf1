// RUN: espalier-opt --fold-epilogues --fuse-kernels --lower-to-exec --split-input-file --verify-diagnostics %s | FileCheck %s

// Functions without a GPU library become launches. Attention forward has blocks of 128 queries for each of 2 x 6 heads.
!q = tensor<2x300x2x3x64xbf16, #model.dims<batch, seq, kv_heads, group, head_dim>>
!k = tensor<2x300x2x64xbf16, #model.dims<batch, seq, kv_heads, head_dim>>
!lse = tensor<2x300x2x3xf32, #model.dims<batch, seq, kv_heads, group>>

module attributes {exec.target = "cuda"} {
// CHECK-LABEL: exec.program @block.forward
// CHECK-NOT: exec.call
// CHECK: exec.launch {buffers = [{{.*}}offset = 0{{.*}}], extent = 4608 : i64, grain = 1 : i64, kernel = @[[$FORWARD:attention_forward_[0-9]+]], outputs = 2 : i64, scalars = [{{.*}}constant = 2{{.*}}constant = 300{{.*}}constant = 300{{.*}}constant = 2{{.*}}constant = 3>, #exec.scalar<constant = 64>{{.*}}seed = 1>]}
func.func @block.forward(%q: !q {model.role = "saved", model.name = "q"}, %k: !k {model.role = "saved", model.name = "k"},
                         %v: !k {model.role = "saved", model.name = "v"})
    -> (!q {model.role = "saved", model.name = "out"}, !lse {model.role = "saved", model.name = "lse"}) {
  %r:2 = model.attention %q, %k, %v {id = 7 : i64, scale = 0.125 : f64, rate = 0.0 : f64, causal} : (!q, !k, !k) -> (!q, !lse)
  return %r#0, %r#1 : !q, !lse
}

// The gradient is two launches with a buffer for delta. Blocks of keys are per key-value head, 2 x 2.
// CHECK-LABEL: exec.program @block.backward
// CHECK: exec.launch {{.*}}#exec.buffer<region = "virtual", offset = 0, bytes = 14400{{[^>]*}}>], extent = 4608 : i64{{.*}}kernel = @attention_query_gradient{{.*}}outputs = 2
// CHECK: exec.launch {{.*}}extent = 1536 : i64{{.*}}kernel = @attention_key_gradient{{.*}}outputs = 2
func.func @block.backward(%q: !q {model.role = "saved", model.name = "q"}, %k: !k {model.role = "saved", model.name = "k"},
                          %v: !k {model.role = "saved", model.name = "v"}, %out: !q {model.role = "saved", model.name = "out"},
                          %lse: !lse {model.role = "saved", model.name = "lse"}, %dout: !q {model.role = "saved", model.name = "dout"})
    -> (!q {model.role = "saved", model.name = "dq"}, !k {model.role = "saved", model.name = "dk"}, !k {model.role = "saved", model.name = "dv"}) {
  %r:3 = model.attention_grad %q, %k, %v, %out, %lse, %dout {id = 7 : i64, scale = 0.125 : f64, rate = 0.0 : f64, causal} : (!q, !k, !k, !q, !lse, !q) -> (!q, !k, !k)
  return %r#0, %r#1, %r#2 : !q, !k, !k
}

// CHECK: exec.kernel @[[$FORWARD]] "attention_forward" split 0 attributes {exec.uses = {{\[\["block.saved.q", "block.saved.k", "block.saved.v", .*\]\]}}, geometry = #exec.geometry<threads = 128, extent_per_block = 128, shared_bytes = {{[0-9]+}}>, parameters = {buffers = 6 : i64, causal, head_dim = 64 : i64, rate = 0.000000e+00 : f64, scalars = 12 : i64, scale = 1.250000e-01 : f64, type = bf16}}
}

// -----

// The accumulator of an embedding. The scalar is 1 if the RUN overwrites its bucket. Loads have 4 bytes, because a row
// of 6 floats is not a multiple of 16 bytes.
!table = tensor<130x6xf32, #model.dims<vocab, hidden>>
!ids = tensor<2x50xi32, #model.dims<batch, seq>>
!dout = tensor<2x50x6xbf16, #model.dims<batch, seq, hidden>>

module attributes {exec.target = "cuda"} {
// CHECK-LABEL: exec.program @embed.backward
// CHECK: exec.launch {{.*}}extent = 130 : i64{{.*}}kernel = @order_tokens{{.*}}outputs = 2{{.*}}#exec.scalar<first = 3>
// CHECK: exec.launch {{.*}}extent = 4 : i64{{.*}}kernel = @sum_segments
// CHECK: exec.launch {{.*}}extent = 4 : i64{{.*}}kernel = @join_segments
// CHECK: exec.kernel @order_tokens{{.*}}parameters = {accumulate, buffers = 3 : i64, dtable = f32, scalars = 5 : i64}
// CHECK: exec.kernel @sum_segments{{.*}}columns_per_block = 256{{.*}}dout = bf16{{.*}}width = 2 : i64
func.func @embed.backward(%i: !ids {model.role = "saved", model.name = "ids"}, %d: !dout {model.role = "saved", model.name = "dout"},
                          %t: !table {model.role = "accumulator", model.name = "table", exec.bucket = 3 : i64})
    -> (!table {model.role = "accumulator", model.name = "table", exec.bucket = 3 : i64}) {
  %g = model.embed_grad %i, %d : (!ids, !dout) -> !table
  %y = model.accumulate %t, %g : (!table, !table) -> !table
  return %y : !table
}
}

// -----

!x = tensor<2x3x5x4xf32, #model.dims<batch, seq, kv_heads, head_dim>>
!row = tensor<2x3x5xf32, #model.dims<batch, seq, kv_heads>>

module attributes {exec.target = "cuda"} {
func.func @block.forward(%q: !x {model.role = "saved", model.name = "q"}, %k: !x {model.role = "saved", model.name = "k"},
                         %v: !x {model.role = "saved", model.name = "v"})
    -> (!x {model.role = "saved", model.name = "out"}, !row {model.role = "saved", model.name = "lse"}) {
  // expected-error @below {{'model.attention' op on cuda needs heads whose sizes are multiples of 8, up to 256, got 4}}
  %r:2 = model.attention %q, %k, %v {id = 7 : i64, scale = 0.5 : f64, rate = 0.0 : f64} : (!x, !x, !x) -> (!x, !row)
  return %r#0, %r#1 : !x, !row
}
}

// -----

!x = tensor<2x3x8xbf16, #model.dims<batch, seq, hidden>>
!w = tensor<8x16xbf16, #model.dims<hidden, ffn>>
!y = tensor<2x3x16xbf16, #model.dims<batch, seq, ffn>>

module attributes {exec.target = "cuda"} {
// The bias is the last buffer of the product and is only read, for any store. A bias of another type is not folded.
// CHECK-LABEL: exec.program @bias.forward
// CHECK-NEXT: exec.call {buffers = [{{.*}}value = "bias.parameters.w"{{.*}}value = "bias.saved.first"{{.*}}value = "bias.parameters.b", element = bf16>], epilogue = "bias", function = "matmul", sizes = array<i64: 6, 16, 8, 1>, types = [bf16, bf16, bf16, bf16]}
// CHECK-NEXT: exec.call {{.*}}value = "bias.parameters.b"{{.*}}types = [bf16, bf16, bf16, bf16]}
// CHECK-NEXT: exec.launch {{.*}}value = "bias.saved.second"
// CHECK-NEXT: exec.call {{.*}}types = [bf16, bf16, bf16]}
// CHECK-NEXT: exec.launch {{.*}}value = "bias.parameters.wide"{{.*}}value = "bias.saved.third"
func.func @bias.forward(%x: !x {model.role = "stream", model.name = "x"},
                        %w: !w {model.role = "parameter", model.name = "w"},
                        %b: tensor<16xbf16, #model.dims<ffn>> {model.role = "parameter", model.name = "b"},
                        %wide: tensor<16xf32, #model.dims<ffn>> {model.role = "parameter", model.name = "wide"},
                        %z: !x {model.role = "saved", model.name = "z"}, %v: !x {model.role = "saved", model.name = "v"})
    -> (!y {model.role = "saved", model.name = "first"}, !y {model.role = "saved", model.name = "second"},
        !y {model.role = "saved", model.name = "third"}) {
  %0 = model.contract %x, %w : (!x, !w) -> !y
  %first = model.add %0, %b : (!y, tensor<16xbf16, #model.dims<ffn>>) -> !y
  %1 = model.contract %z, %w : (!x, !w) -> !y
  %2 = model.add %1, %b : (!y, tensor<16xbf16, #model.dims<ffn>>) -> !y
  %second = model.tanh %2 : (!y) -> !y
  %3 = model.contract %v, %w : (!x, !w) -> !y
  %third = model.add %3, %wide : (!y, tensor<16xf32, #model.dims<ffn>>) -> !y
  return %first, %second, %third : !y, !y, !y
}
}
