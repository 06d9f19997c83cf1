// Four layers with embedding and head on two stages, four micro-batches: a module after plan-buffers. Each role has a
// program that accesses the role's regions.
#in = #exec.buffer<region = "stream_in", offset = 0, bytes = 96, value = "stream", element = f32>
#out = #exec.buffer<region = "stream_out", offset = 0, bytes = 96, value = "stream", element = f32, layer = 1>
#din = #exec.buffer<region = "cotangent_in", offset = 0, bytes = 96, value = "cotangent", element = f32>
#dout = #exec.buffer<region = "cotangent_out", offset = 0, bytes = 96, value = "cotangent", element = f32, layer = 1>
#ids = #exec.buffer<region = "inputs", offset = 0, bytes = 24, value = "tokens", element = i32>
#kept = #exec.buffer<region = "saved", offset = 0, bytes = 96, value = "block.none.saved.saved.0", element = f32>
#work = #exec.buffer<region = "workspace", offset = 0, bytes = 96, value = "%0", element = f32>
#w = #exec.buffer<region = "parameters", offset = 0, bytes = 96, value = "block.decayed.w", element = f32>
#dw = #exec.buffer<region = "gradients", offset = 0, bytes = 96, value = "block.decayed.w.gradient", element = f32, bucket = 1>
module attributes {exec.optimizer = #exec.optimizer<type = "AdamW">,
    dist.mesh = #dist.mesh<pp = 2, dp = 2>, exec.target = "cpu",
    exec.plan = #exec.plan<micro_batches = 4, schedule = "1f1b", zero = 1, stages = [#exec.stage<first_layer = 0, layers = 2>, #exec.stage<first_layer = 2, layers = 2>]>,
    model.runs = [#model.run<kind = "embed", count = 1>, #model.run<kind = "block", count = 4>, #model.run<kind = "head", count = 1>]} {
  exec.segment "embed" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
  exec.segment "block" attributes {gradient_bytes = 1024 : i64, parameter_bytes = 1024 : i64, state_bytes = 1024 : i64} {
    exec.bucket "block.decayed" attributes {decays, elements = 256 : i64, gradient_offset = 0 : i64, holders = array<i64>, norm_weight = 1.0 : f64, number = 0 : i64, part_elements = 128 : i64, partial = ["dp"], share = ["dp"], state_offset = 0 : i64, stored = f32, stored_offset = 0 : i64} {
      exec.parameter "w" {first = 0 : i64, initializer = "zeros", local = tensor<24xf32, #model.dims<hidden>>, padded_shape = array<i64: 24>, shape = array<i64: 24>, sharding = #dist.sharding<[{ }]>, stddev = 0.0 : f64}
    }
  }
  exec.segment "head" attributes {gradient_bytes = 0 : i64, parameter_bytes = 0 : i64, state_bytes = 0 : i64} {
  }
  exec.region "inputs" of "tokens" {bytes = 24 : i64, offset = 0 : i64}
  exec.region "inputs" of "positions" {bytes = 24 : i64, offset = 64 : i64}
  exec.region "inputs" of "labels" {bytes = 24 : i64, offset = 128 : i64}
  exec.region "inputs" of "loss_weights" {bytes = 24 : i64, offset = 192 : i64}
  exec.region "saved" of "block.none" {bytes = 128 : i64, offset = 0 : i64}
  exec.region "stream_in" of "stream" {bytes = 96 : i64, offset = 0 : i64}
  exec.program @embed.none.forward attributes {passing = [#ids, #out]} {
    exec.call {function = "copy", buffers = [#ids, #out], types = [tensor<24xi32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
  }
  exec.program @block.none.forward attributes {passing = [#in, #out, #kept]} {
    exec.call {function = "copy", buffers = [#in, #kept], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
    exec.call {function = "copy", buffers = [#w, #out], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
  }
  exec.program @block.none.backward attributes {passing = [#dout, #kept, #din]} {
    exec.call {function = "copy", buffers = [#kept, #work], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
    exec.call {function = "copy", buffers = [#work, #dw], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>, accumulate}
    exec.call {function = "copy", buffers = [#dout, #din], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
  }
  exec.program @block.evaluate attributes {passing = [#in, #out]} {
    exec.call {function = "copy", buffers = [#in, #out], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
  }
  exec.program @block.update {
    exec.call {function = "zero", buffers = [#w], types = [tensor<24xf32>], sizes = array<i64: 96>}
  }
  exec.program @head.none.forward attributes {passing = [#in]} {
    exec.call {function = "copy", buffers = [#in, #work], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
  }
  exec.program @head.none.backward attributes {passing = [#in, #din]} {
    exec.call {function = "copy", buffers = [#in, #din], types = [tensor<24xf32>, tensor<24xf32>], sizes = array<i64: 1, 96, 96>}
  }
}
