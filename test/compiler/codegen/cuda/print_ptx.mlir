// RUN: espalier-opt --fuse-kernels --lower-to-exec --plan-buffers --print-ptx -o /dev/null %s > %t.ptx
// RUN: FileCheck %s --input-file=%t.ptx
// RUN: espalier-opt --fuse-kernels --lower-to-exec --plan-buffers --print-ptx -o /dev/null %s | diff - %t.ptx

!x = tensor<2x64x4096xbf16, #model.dims<batch, seq, hidden>>
!xf = tensor<2x64x4096xf32, #model.dims<batch, seq, hidden>>
!row = tensor<2x64xf32, #model.dims<batch, seq>>
!h = tensor<4096xf32, #model.dims<hidden>>
!small = tensor<2x64x64xf32, #model.dims<batch, seq, head_dim>>
!odd = tensor<2x64x50257xf32, #model.dims<batch, seq, vocab>>
!flat = tensor<1027xf32, #model.dims<hidden>>

module attributes {exec.target = "cuda"} {

// The text states the grid of each kernel. The runtime compares it with the plan.
// CHECK: // [[FIRST:[a-z]+_[0-9]+]]: a block of {{[0-9]+}} threads does {{[0-9]+}} iterations, {{[0-9]+}} columns, with {{[0-9]+}} bytes shared
// CHECK: .version 8.0
// CHECK: .target sm_80

// Four warps per row. Loads of 16 bytes stay in registers for the second pass. Sums use shuffles within warps, then
// shared memory across warps.
// CHECK: .visible .entry [[NORM:row_[0-9]+]](
// CHECK: .maxntid 128, 1, 1
// CHECK-COUNT-4: ld.global.v4.{{[bu]}}32
// CHECK-NOT: .nc
// CHECK-COUNT-5: shfl.sync.bfly.b32
// CHECK: st.shared.f32
// CHECK: bar.sync 0
// CHECK-NOT: ld.global.v4
// CHECK: cvt.rn.bf16x2.f32
// CHECK: st.global.v4.{{[bu]}}32
// CHECK-NOT: bra
// CHECK: ret
func.func @normalize.forward(%x: !x {model.role = "stream", model.name = "x"})
    -> (!x {model.role = "stream", model.name = "x"}) {
  %wide = model.convert %x : (!x) -> !xf
  %square = model.mul %wide, %wide : (!xf, !xf) -> !xf
  %sum = model.reduce_sum %square : (!xf) -> !row
  %root = model.rsqrt %sum : (!row) -> !row
  %scaled = model.mul %wide, %root : (!xf, !row) -> !xf
  %y = model.convert %scaled : (!xf) -> !x
  return %y : !x
}

// Half a warp is enough for a row with one vector per thread, so a warp processes two rows.
// CHECK: .visible .entry [[SMALL:row_[0-9]+]](
// CHECK: .maxntid 128, 1, 1
// CHECK: ld.global.v4.f32
// CHECK: shfl.sync.bfly.b32 {{.*}}, 8, 31, -1
// CHECK: shfl.sync.bfly.b32 {{.*}}, 1, 31, -1
// CHECK-NOT: bar.sync 0
// CHECK: ret
func.func @small.forward(%x: !small {model.role = "stream", model.name = "x"})
    -> (!small {model.role = "stream", model.name = "x"}) {
  %sum = model.reduce_max %x : (!small) -> !row
  %y = model.sub %x, %sum : (!small, !row) -> !small
  return %y : !small
}

// A row of odd length uses scalar loads; neighbouring threads load neighbouring elements. The row does not fit in
// registers.
// CHECK: .visible .entry [[ODD:row_[0-9]+]](
// CHECK: .maxntid 512, 1, 1
// CHECK: ld.global.f32 {{.*}}+2048]
// CHECK: ex2.approx.ftz.f32
// CHECK-NOT: ld.global.v
// CHECK: ret
func.func @odd.forward(%x: !odd {model.role = "stream", model.name = "x"})
    -> (!odd {model.role = "stream", model.name = "x"}) {
  %max = model.reduce_max %x : (!odd) -> !row
  %difference = model.sub %x, %max : (!odd, !row) -> !odd
  %y = model.exp %difference : (!odd) -> !odd
  return %y : !odd
}

// A flat kernel uses vectors; the last block processes the remaining elements one by one.
// CHECK: .visible .entry [[FLAT:flat_[0-9]+]](
// CHECK: .maxntid 256, 1, 1
// CHECK: ld.global.v4.f32
// CHECK: st.global.v4.f32
// CHECK: ld.global.f32
// CHECK: st.global.f32
// CHECK: ret
func.func @flat.forward(%x: !flat {model.role = "stream", model.name = "x"})
    -> (!flat {model.role = "stream", model.name = "x"}) {
  %y = model.mul %x, %x : (!flat, !flat) -> !flat
  return %y : !flat
}

// Sums over rows: each warp sums its rows, then the sums of the warps are added in order.
// CHECK: .visible .entry [[COLUMN:column_[0-9]+]](
// CHECK: .maxntid 256, 1, 1
// CHECK: %ctaid.y
// CHECK: ld.global.v4.{{[bu]}}32
// CHECK: st.shared.v4.f32
// CHECK: bar.sync 0
// CHECK-COUNT-7: ld.shared.f32
// CHECK: st.global.f32
// CHECK-NOT: atom
// CHECK: ret
func.func @column.forward(%x: !x {model.role = "stream", model.name = "x"},
                          %g: !h {model.role = "accumulator", model.name = "g"})
    -> (!h {model.role = "accumulator", model.name = "g"}) {
  %wide = model.convert %x : (!x) -> !xf
  %sum = model.reduce_sum %wide : (!xf) -> !h
  %new = model.accumulate %g, %sum : (!h, !h) -> !h
  return %new : !h
}

}
