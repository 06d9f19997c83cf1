// RUN: espalier-opt --fuse-kernels --lower-to-exec --plan-buffers %s | FileCheck %s

// In a checked plan, 64 bytes after each buffer stay unused during its live range, and the program lists them. The two
// products have 192 bytes each and are live at instructions 0 to 1 and 1 to 2.
// CHECK-LABEL: exec.program @mlp.none.forward
// CHECK-SAME: exec.guards = array<i64: 192, 0, 1, 448, 1, 2>
// CHECK-SAME: workspace_bytes = 512
// CHECK: region = "stream_in"{{.*}}region = "workspace", offset = 0, bytes = 192
// CHECK-NEXT: region = "workspace", offset = 0, bytes = 192{{[^>]*}}>{{.*}}region = "workspace", offset = 256, bytes = 192
// CHECK-NEXT: region = "workspace", offset = 256, bytes = 192{{[^>]*}}>{{.*}}region = "stream_out"
module attributes {exec.guard_bytes = 64 : i64} {
  func.func @mlp.none.forward(
      %x: tensor<2x4x6xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "x"},
      %w: tensor<6x6xf32, #model.dims<hidden, ffn>> {model.role = "parameter", model.name = "w"},
      %v: tensor<6x6xf32, #model.dims<ffn, kv_heads>> {model.role = "parameter", model.name = "v"},
      %u: tensor<6x6xf32, #model.dims<kv_heads, hidden>> {model.role = "parameter", model.name = "u"})
      -> (tensor<2x4x6xf32, #model.dims<batch, seq, hidden>> {model.role = "stream", model.name = "y"}) {
    %a = model.contract %x, %w : (tensor<2x4x6xf32, #model.dims<batch, seq, hidden>>, tensor<6x6xf32, #model.dims<hidden, ffn>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>
    %b = model.contract %a, %v : (tensor<2x4x6xf32, #model.dims<batch, seq, ffn>>, tensor<6x6xf32, #model.dims<ffn, kv_heads>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, kv_heads>>
    %y = model.contract %b, %u : (tensor<2x4x6xf32, #model.dims<batch, seq, kv_heads>>, tensor<6x6xf32, #model.dims<kv_heads, hidden>>) -> tensor<2x4x6xf32, #model.dims<batch, seq, hidden>>
    return %y : tensor<2x4x6xf32, #model.dims<batch, seq, hidden>>
  }
}
