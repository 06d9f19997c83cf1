// The attributes of run and plan: fields with their initial values are left out.
// RUN: espalier-opt %s | espalier-opt | FileCheck %s

// CHECK-LABEL: module @given
// CHECK-SAME: exec.batch_ramp = array<i64: 1, 2>
// CHECK-SAME: exec.matmul_algorithms = #exec.matmul_algorithms<library = "cuBLASLt 13.1.0 on sm_90", products = {"BF16 [4, 8]" = "00ff"}>
// CHECK-SAME: exec.mode = #exec.mode<evaluate>
// CHECK-SAME: exec.optimizer = #exec.optimizer<type = "Muon", beta1 = 9.000000e-01, momentum = 9.000000e-01, nesterov = true, newton_schulz_steps = 5, scale_mode = "spectral", scale_factor = 2.000000e-01, group_decays = [1.000000e-01, 0.000000e+00], masters = true>
// CHECK-SAME: exec.plan = #exec.plan<micro_batches = 4, virtual_stages = 2, zero = 1, vocab_parallel = false, offload_optimizer = true, schedule = "interleaved",
// CHECK-SAME: stages = [#exec.stage<first_layer = 0, layers = 2, recompute = ["none", "full"]>, #exec.stage<first_layer = 2, layers = 1>]>
// CHECK-SAME: model.runs = [#model.run<kind = "embed", count = 1>]
module @given attributes {
    exec.plan = #exec.plan<schedule = "interleaved", micro_batches = 4, virtual_stages = 2, zero = 1, vocab_parallel = false,
                           offload_optimizer = true, sequence_parallel = false, micro_batch_size = 1,
                           stages = [#exec.stage<first_layer = 0, layers = 2, recompute = ["none", "full"]>,
                                     #exec.stage<first_layer = 2, layers = 1>]>,
    exec.optimizer = #exec.optimizer<type = "Muon", beta1 = 0.9, momentum = 0.9, nesterov = true, newton_schulz_steps = 5,
                                     scale_mode = "spectral", scale_factor = 0.2, group_decays = [0.1, 0.0],
                                     epsilon = 0.0, masters = true>,
    exec.mode = #exec.mode<evaluate>, exec.batch_ramp = array<i64: 1, 2>,
    exec.matmul_algorithms = #exec.matmul_algorithms<library = "cuBLASLt 13.1.0 on sm_90",
                                                     products = {"BF16 [4, 8]" = "00ff"}>,
    model.runs = [#model.run<kind = "embed", count = 1>]} {
  // CHECK: func.func private @block()
  // CHECK-SAME: model.parameters = {q = #exec.parameter<initializer = normal, stddev = 2.000000e-02, decays = true, clip = <counter = "scores", heads = "kv_heads", exponent = 5.000000e-01>, rate_group = 2>, w = #exec.parameter<sign_rate = 1.000000e-03, tied_to = "embed.table">}
  func.func private @block() attributes {model.parameters = {
      q = #exec.parameter<decays = true, initializer = normal, stddev = 0.02, rate_group = 2,
                          clip = <counter = "scores", heads = "kv_heads", exponent = 0.5>>,
      w = #exec.parameter<initializer = zeros, sign_rate = 0.001, tied_to = "embed.table">}}
}

// CHECK-LABEL: module @initial
// CHECK-SAME: exec.plan = #exec.plan<>
module @initial attributes {exec.plan = #exec.plan<micro_batches = 1, schedule = "1f1b", stages = []>} {
}
