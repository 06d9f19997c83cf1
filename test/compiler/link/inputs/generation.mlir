// Three layers with embedding and head on two stages: a module after plan-buffers with run_mode predict, with a program
// per phase of each segment.
#tokens = #exec.buffer<region = "inputs", offset = 0, bytes = 32, value = "tokens.prefill", element = i32>
#token = #exec.buffer<region = "inputs", offset = 64, bytes = 8, value = "tokens.decode", element = i32>
#row = #exec.buffer<region = "inputs", offset = 128, bytes = 8, value = "rows.prefill", element = i32>
#ins = #exec.buffer<region = "stream_in", offset = 0, bytes = 96, value = "stream.prefill", element = f32>
#outs = #exec.buffer<region = "stream_out", offset = 0, bytes = 96, value = "stream.prefill", element = f32, layer = 1>
#in = #exec.buffer<region = "stream_in", offset = 0, bytes = 24, value = "stream.decode", element = f32>
#out = #exec.buffer<region = "stream_out", offset = 0, bytes = 24, value = "stream.decode", element = f32, layer = 1>
#keys = #exec.buffer<region = "cache", offset = 0, bytes = 192, value = "block.keys0", element = f32>
#logits = #exec.buffer<region = "logits", offset = 0, bytes = 40, value = "logits", element = f32>
#work = #exec.buffer<region = "workspace", offset = 0, bytes = 96, value = "%0", element = f32>
#w = #exec.buffer<region = "parameters", offset = 0, bytes = 96, value = "block.decayed.w", element = f32>
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">,
    dist.mesh = #dist.mesh<pp = 2>, exec.target = "cpu", exec.mode = #exec.mode<generate>,
    exec.plan = #exec.plan<micro_batches = 1, schedule = "1f1b", stages = [#exec.stage<first_layer = 0, layers = 2>, #exec.stage<first_layer = 2, layers = 1>]>,
    model.runs = [#model.run<kind = "embed", count = 1>, #model.run<kind = "block", count = 3>, #model.run<kind = "head", count = 1>]} {
  exec.segment "embed" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
  exec.segment "block" attributes {gradient_bytes = 512 : i64, parameter_bytes = 512 : i64, state_bytes = 1024 : i64} {
    exec.bucket "block.decayed" attributes {decays, elements = 128 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 128 : i64, partial = [], share = [], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
      exec.parameter "w" {first = 0 : i64, initializer = "zeros", local = tensor<24xf32, #model.dims<hidden>>, padded_shape = array<i64: 24>, shape = array<i64: 24>, sharding = #dist.sharding<[{ }]>, stddev = 0.0 : f64}
    }
  }
  exec.segment "head" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
  exec.region "inputs" of "tokens.prefill" {bytes = 32 : i64, offset = 0 : i64}
  exec.region "inputs" of "tokens.decode" {bytes = 8 : i64, offset = 64 : i64}
  exec.region "inputs" of "rows.prefill" {bytes = 8 : i64, offset = 128 : i64}
  exec.region "stream_in" of "stream" {bytes = 96 : i64, offset = 0 : i64}
  exec.region "cache" of "block" {bytes = 192 : i64, offset = 0 : i64}
  exec.region "logits" of "logits" {bytes = 40 : i64, offset = 0 : i64}
  exec.program @embed.prefill attributes {passing = [#tokens, #outs]} {
    exec.call {function = "copy", buffers = [#tokens, #outs], types = [tensor<8xi32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
  }
  exec.program @block.prefill attributes {passing = [#ins, #keys, #outs]} {
    exec.call {function = "copy", buffers = [#ins, #keys], types = [tensor<24xf32>, tensor<48xf32>], sizes = array<i64: 1, 96, 96>}
    exec.call {function = "copy", buffers = [#w, #work], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
    exec.call {function = "copy", buffers = [#work, #outs], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
  }
  exec.program @head.prefill attributes {passing = [#row, #logits]} {
    exec.call {function = "copy", buffers = [#row, #logits], types = [tensor<2xi32>, tensor<10xf32>], sizes = array<i64: 1, 8, 8>}
  }
  exec.program @embed.decode attributes {passing = [#token, #out]} {
    exec.call {function = "copy", buffers = [#token, #out], types = [tensor<2xi32>, tensor<6xf32>], sizes = array<i64: 1, 24, 24>}
  }
  exec.program @block.decode attributes {passing = [#in, #keys, #out]} {
    exec.call {function = "copy", buffers = [#in, #keys], types = [tensor<6xf32>, tensor<48xf32>], sizes = array<i64: 1, 24, 24>}
    exec.call {function = "copy", buffers = [#w, #out], types = [tensor<24xf32>, tensor<6xf32>], sizes = array<i64: 1, 24, 24>}
  }
  exec.program @head.decode attributes {passing = [#in, #logits]} {
    exec.call {function = "copy", buffers = [#in, #logits], types = [tensor<6xf32>, tensor<10xf32>], sizes = array<i64: 1, 24, 24>}
  }
}
