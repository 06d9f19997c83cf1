// RUN: espalier-opt --fuse-kernels --lower-to-exec --plan-buffers %s | FileCheck %s

!x = tensor<2x3x8xf32, #model.dims<batch, seq, hidden>>
!w = tensor<8x8xf32, #model.dims<hidden, ffn>>
!y = tensor<2x3x8xf32, #model.dims<batch, seq, ffn>>

// The sum is reduced in the place of its result; the wait stands before the kernel that reads it.
// CHECK-LABEL: exec.program @block.forward
// CHECK: exec.call {{.*}}function = "matmul"
// CHECK-NEXT: exec.start {{.*}}kind = "all_reduce"
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
