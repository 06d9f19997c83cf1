// RUN: espalier-opt --fuse-kernels --lower-to-exec --plan-buffers %s | FileCheck %s

// Four intermediate values have 192, 192, 256 and 192 bytes, but at most two are live at once. The third product reuses
// the offset of the dead activation.
// CHECK-LABEL: exec.program @mlp.none.forward
// CHECK-SAME: workspace_bytes = 448
// CHECK: "stream_in"{{.*}}region = "workspace", offset = 256, bytes = 192
// CHECK-NEXT: exec.launch {buffers = [#exec.buffer<region = "workspace", offset = 256, bytes = 192{{[^>]*}}>, #exec.buffer<region = "workspace", offset = 256, bytes = 192{{[^>]*}}>]
// CHECK-NEXT: region = "workspace", offset = 256, bytes = 192{{[^>]*}}>{{.*}}region = "workspace", offset = 0, bytes = 256
// CHECK-NEXT: region = "workspace", offset = 0, bytes = 256{{[^>]*}}>{{.*}}region = "workspace", offset = 256, bytes = 192
// CHECK-NEXT: region = "workspace", offset = 256, bytes = 192{{[^>]*}}>{{.*}}region = "stream_out"
func.func @mlp.none.forward(
    %x: tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "x"},
    %w: tensor<8x6xf32, #model.dims<hidden, ffn>> {model.role = "parameter", model.name = "w"},
    %v: tensor<6x8xf32, #model.dims<ffn, hidden>> {model.role = "parameter", model.name = "v"})
    -> (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "y"}) {
  %wide = model.contract %x, %w : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<8x6xf32, #model.dims<hidden, ffn>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>
  %active = model.tanh %wide : (tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>
  %narrow = model.contract %active, %v : (tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>, tensor<6x8xf32, #model.dims<ffn, hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  %wider = model.contract %narrow, %w : (tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>, tensor<8x6xf32, #model.dims<hidden, ffn>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>
  %y = model.contract %wider, %v : (tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>, tensor<6x8xf32, #model.dims<ffn, hidden>>) -> tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
  return %y : tensor<2x4x8xf32, #model.dims<batch, seq, hidden>>
}

// At most 640 bytes are live at once, in the last three buffers. If buffers were placed only by size, the second would
// follow the first, whose space then fits only one of the small ones: 704 bytes.
// CHECK-LABEL: exec.program @order
// CHECK-SAME: workspace_bytes = 640
exec.program @order {
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 0, bytes = 256>], types = [f32], sizes = array<i64: 64>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 1, bytes = 256>], types = [f32], sizes = array<i64: 64>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 0, bytes = 256>], types = [f32], sizes = array<i64: 64>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 2, bytes = 192>], types = [f32], sizes = array<i64: 48>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 3, bytes = 192>], types = [f32], sizes = array<i64: 48>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 3, bytes = 192>], types = [f32], sizes = array<i64: 48>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 1, bytes = 256>], types = [f32], sizes = array<i64: 64>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 2, bytes = 192>], types = [f32], sizes = array<i64: 48>}
}
