// RUN: espalier-opt --fold-epilogues --fuse-kernels --lower-to-exec --plan-buffers %s | FileCheck %s

!x = tensor<2x3x8xf32, #model.dims<batch, seq, hidden>>
!w = tensor<8x8xf32, #model.dims<hidden, ffn>>
!y = tensor<2x3x8xf32, #model.dims<batch, seq, ffn>>

// The all-reduce runs in place; the partial sums are another value at the same address. The wait precedes the kernel
// that reads the result.
// CHECK-LABEL: exec.program @block.forward
// CHECK: exec.call {{.*}}function = "matmul"
// CHECK-NEXT: exec.start {{.*}}value = "%0.terms"{{.*}}kind = "all_reduce"{{.*}}value = "%0", element
// CHECK-NEXT: exec.wait
// CHECK-NEXT: exec.launch {{.*}}region = "stream_out"
func.func @block.forward(%x: !x {model.role = "stream", model.name = "x"},
                         %w: !w {model.role = "parameter", model.name = "w"})
    -> (!y {model.role = "stream", model.name = "x"}) {
  %p = model.contract %x, %w : (!x, !w) -> !y
  %s = dist.all_reduce %p over ["tp"] "sum" : (!y) -> !y
  %t = model.tanh %s : (!y) -> !y
  return %t : !y
}

// The norms of several gradients are accumulated directly in the statistic, without buffers in the workspace.
// CHECK-LABEL: exec.program @block.norm
// CHECK-COUNT-3: exec.call {always_adds, buffers = [{{.*}}region = "gradients"{{.*}}region = "scalars", offset = 8{{.*}}function = "squared_norm"
func.func @block.norm(%n: tensor<f32> {model.role = "statistic", model.name = "squared_norm"},
                      %a: tensor<16xf32> {model.role = "accumulator", model.name = "a"},
                      %b: tensor<16xf32> {model.role = "accumulator", model.name = "b"},
                      %c: tensor<16xf32> {model.role = "accumulator", model.name = "c"})
    -> (tensor<f32> {model.role = "statistic", model.name = "squared_norm"}) {
  %0 = model.squared_norm %a {weight = 1.0 : f64} : (tensor<16xf32>) -> tensor<f32>
  %1 = model.accumulate %n, %0 {always} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %2 = model.squared_norm %b {weight = 1.0 : f64} : (tensor<16xf32>) -> tensor<f32>
  %3 = model.accumulate %1, %2 {always} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %4 = model.squared_norm %c {weight = 0.5 : f64} : (tensor<16xf32>) -> tensor<f32>
  %5 = model.accumulate %3, %4 {always} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %5 : tensor<f32>
}

!half = tensor<2x3x4xf32, #model.dims<batch, seq, hidden>>

// A gather along an inner dimension is unpacked before the first use of its result and not where it starts, so a
// product of other operands runs beside it.
// CHECK-LABEL: exec.program @gather.forward
// CHECK: exec.start {{.*}}kind = "all_gather"
// CHECK-NEXT: exec.call {{.*}}function = "matmul"
// CHECK-NEXT: exec.wait
// CHECK-NEXT: exec.call {{.*}}function = "rearrange"{{.*}}sizes = array<i64: 2, 6, 16>
// CHECK-NEXT: exec.call {{.*}}function = "matmul"
func.func @gather.forward(%x: !x {model.role = "stream", model.name = "x"},
                          %part: !half {model.role = "saved", model.name = "part"},
                          %w: !w {model.role = "parameter", model.name = "w"})
    -> (!y {model.role = "stream", model.name = "x"}) {
  %g = dist.all_gather %part over ["tp"] dim 2 : (!half) -> !x
  %p = model.contract %x, %w : (!x, !w) -> !y
  %q = model.contract %g, %w : (!x, !w) -> !y
  %s = model.add %p, %q : (!y, !y) -> !y
  return %s : !y
}

// The product itself adds the bias.
// CHECK-LABEL: exec.program @bias.forward
// CHECK-NEXT: exec.call {buffers = [{{.*}}value = "bias.saved.y"{{.*}}value = "bias.parameters.b", element = f32>], epilogue = "bias", function = "matmul", sizes = array<i64: 6, 8, 8, 1>
// CHECK-NOT: exec.launch
func.func @bias.forward(%x: !x {model.role = "stream", model.name = "x"},
                        %w: !w {model.role = "parameter", model.name = "w"},
                        %b: tensor<8xf32, #model.dims<ffn>> {model.role = "parameter", model.name = "b"})
    -> (!y {model.role = "saved", model.name = "y"}) {
  %0 = model.contract %x, %w : (!x, !w) -> !y
  %y = model.add %0, %b : (!y, tensor<8xf32, #model.dims<ffn>>) -> !y
  return %y : !y
}
