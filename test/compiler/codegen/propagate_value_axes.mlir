// RUN: espalier-opt --split-input-file --propagate-value-axes %s | FileCheck %s

#in = #exec.buffer<region = "stream_in", offset = 0, bytes = 96, value = "stream", element = f32>
#whole = #exec.buffer<region = "workspace", offset = 0, bytes = 192, value = "%0", element = f32>

// Both programs gather the stream, over different axes. Each learns the other's axis, because they name the same value;
// what a program gathers keeps the axis of the other.
// CHECK-LABEL: exec.program @block.none.forward
// CHECK-SAME: exec.axes = {"%0" = {split = ["cp"]}, stream = {split = ["cp", "tp"]}}
// CHECK-LABEL: exec.program @block.none.backward
// CHECK-SAME: exec.axes = {"%0" = {split = ["tp"]}, stream = {split = ["cp", "tp"]}}
// A program without collectives has no axes.
// CHECK-LABEL: exec.program @block.update
// CHECK-NOT: exec.axes
module {
  exec.program @block.none.forward attributes {passing = [#in]} {
    exec.start {id = 0, kind = "all_gather", reduction = "sum", axes = ["tp"], type = f32, elements = 24, from = #in, to = #whole}
    exec.wait {id = 0}
  }
  exec.program @block.none.backward attributes {passing = [#in]} {
    exec.start {id = 0, kind = "all_gather", reduction = "sum", axes = ["cp"], type = f32, elements = 24, from = #in, to = #whole}
    exec.wait {id = 0}
  }
  exec.program @block.update {
    exec.call {function = "zero", buffers = [#whole], types = [tensor<48xf32>], sizes = array<i64: 192>}
  }
}

// -----

#terms = #exec.buffer<region = "workspace", offset = 0, bytes = 192, value = "%0", element = f32>
#turned = #exec.buffer<region = "workspace", offset = 192, bytes = 192, value = "%1", element = f32>
#part = #exec.buffer<region = "workspace", offset = 384, bytes = 96, value = "%2", element = f32>
#most = #exec.buffer<region = "workspace", offset = 512, bytes = 96, value = "%3", element = f32>

// A rearrangement before a reduce-scatter has terms as well. Terms over dp, which lower-to-exec has found, stay terms. A
// maximum is recorded with its reduction.
// CHECK: exec.axes = {"%0" = {partial = ["dp", "cp", "tp"]}, "%1" = {partial = ["dp", "cp", "tp"], reduction = "sum"}, "%2" = {partial = ["dp", "cp"], reduction = "max", split = ["tp"]}, "%3" = {partial = ["dp"], split = ["tp"]}}
module {
  exec.program @block.none.forward attributes {exec.shapes = {"%0" = [tensor<48xf32, #model.dims<hidden>>, array<i64: 0>, 2]}} {
    exec.call {function = "rearrange", buffers = [#terms, #turned], types = [tensor<48xf32>, tensor<48xf32>], sizes = array<i64: 2, 24, 4>}
    exec.start {id = 0, kind = "reduce_scatter", reduction = "sum", axes = ["tp"], type = f32, elements = 24, from = #turned, to = #part}
    exec.wait {id = 0}
    exec.start {id = 1, kind = "all_reduce", reduction = "max", axes = ["cp"], type = f32, elements = 24, from = #part, to = #most}
    exec.wait {id = 1}
  }
}
