// RUN: espalier-opt --fuse-kernels --lower-to-exec --plan-buffers --print-ptx -o /dev/null %s > %t.ptx
// RUN: FileCheck %s --input-file=%t.ptx
// RUN: FileCheck %s --input-file=%t.ptx --check-prefix=SUMS

!q = tensor<2x300x2x3x64xbf16, #model.dims<batch, seq, kv_heads, group, head_dim>>
!k = tensor<2x300x2x64xbf16, #model.dims<batch, seq, kv_heads, head_dim>>
!lse = tensor<2x300x2x3xf32, #model.dims<batch, seq, kv_heads, group>>

// Kernels use no atomics, because their order would change sums.
// SUMS-NOT: {{^ *(atom|red)}}

module attributes {exec.target = "cuda"} {
// Scores stay in registers. Products run on tensor cores, on tiles loaded by asynchronous copies. Probabilities use
// ex2. The kernel writes only the result and its log-sum-exp. A warp skips tiles that are fully masked.
// CHECK: .visible .entry [[FORWARD:attention_forward_[0-9]+]](
// CHECK: .maxntid 128, 1, 1
// CHECK: cp.async.cg.shared.global
// CHECK: ex2.approx.ftz.f32
// CHECK: cp.async.wait_all
// CHECK: bar.sync
// CHECK: setp.ge.s32 [[HIDDEN:%p[0-9]+]]
// CHECK-NEXT: @[[HIDDEN]] bra
// CHECK: ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// CHECK: lg2.approx.f32
func.func @attention.forward(%q: !q {model.role = "saved", model.name = "q"}, %k: !k {model.role = "saved", model.name = "k"},
                             %v: !k {model.role = "saved", model.name = "v"})
    -> (!q {model.role = "saved", model.name = "out"}, !lse {model.role = "saved", model.name = "lse"}) {
  %r:2 = model.attention %q, %k, %v {id = 7 : i64, scale = 0.125 : f64, rate = 0.0 : f64, causal} : (!q, !k, !k) -> (!q, !lse)
  return %r#0, %r#1 : !q, !lse
}

// Copies rows of a table, 16 bytes at a time.
// CHECK: .visible .entry [[EMBED:embed_[0-9]+]](
// CHECK: st.global.v4.b32
// CHECK: ld.global.v4.u32
// CHECK: ret
func.func @embed.forward(%t: tensor<130x64xbf16, #model.dims<vocab, hidden>> {model.role = "parameter", model.name = "t"},
                         %i: tensor<2x50xi32, #model.dims<batch, seq>> {model.role = "saved", model.name = "ids"})
    -> (tensor<2x50x64xbf16, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "x"}) {
  %x = model.embed %t, %i : (tensor<130x64xbf16, #model.dims<vocab, hidden>>, tensor<2x50xi32, #model.dims<batch, seq>>) -> tensor<2x50x64xbf16, #model.dims<batch, seq, hidden>>
  return %x : tensor<2x50x64xbf16, #model.dims<batch, seq, hidden>>
}

// The rotation uses only registers and no shared memory.
// CHECK: .visible .entry [[ROPE:rope_[0-9]+]](
// CHECK-NOT: bar.sync
// CHECK: ret
func.func @rope.forward(%x: !k {model.role = "saved", model.name = "x"},
                        %p: tensor<2x300xi32, #model.dims<batch, seq>> {model.role = "saved", model.name = "p"})
    -> (!k {model.role = "saved", model.name = "y"}) {
  %y = model.rope %x, %p {theta = 1.0e+04 : f64} : (!k, tensor<2x300xi32, #model.dims<batch, seq>>) -> !k
  return %y : !k
}
}
