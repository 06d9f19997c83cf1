// Tests ldmatrix and mma.sync together, as a kernel uses them, against a product in double.
#include <gmock/gmock.h>

#include <bit>

#include "test/emulator/kernel_text.h"
#include "test/emulator/numbers.h"

namespace espalier::emulator {
namespace {

/// C[16, 8] = A[16, k] * B[k, 8] + 1 by one warp. A and B are row-major halves, which the kernel copies to shared
/// memory.
template <class Half> void checkProduct(const std::string &type, uint32_t k) {
  bool isWide = k == 16;
  std::string rows = std::to_string(k * 2);
  // A: 16 rows of k; B follows. Lane l of ldmatrix addresses row l % 16 and, with k = 16, column 8 in lanes 16 to 31.
  std::string body = R"(mov.u32 %r2, dynamic;
setp.ne.s32 %p1, %r1, 0;
@%p1 bra $COPIED;
mov.b32 %r3, 0;
$COPY:
cvt.u64.u32 %rd5, %r3;
add.s64 %rd6, %rd1, %rd5;
ld.global.b32 %r4, [%rd6];
add.s32 %r5, %r2, %r3;
st.shared.b32 [%r5], %r4;
add.s32 %r3, %r3, 4;
setp.lt.u32 %p2, %r3, )" +
                     std::to_string((16 * k + k * 8) * 2) + R"(;
@%p2 bra $COPY;
$COPIED:
bar.sync 0;
and.b32 %r6, %r1, 15;
shr.u32 %r7, %r1, 4;
mul.lo.s32 %r8, %r6, )" +
                     rows + R"(;
mad.lo.s32 %r8, %r7, 16, %r8;
add.s32 %r8, %r8, %r2;
mad.lo.s32 %r9, %r6, 16, %r2;
mov.f32 %f9, 0f3F800000;
)";
  std::string b = std::to_string(16 * k * 2);
  if (isWide)
    body += "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r8];\n"
            "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r9+" +
            b +
            "];\n"
            "mma.sync.aligned.m16n8k16.row.col.f32." +
            type + "." + type +
            ".f32 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, %r13}, "
            "{%r14, %r15}, {%f9, %f9, %f9, %f9};\n";
  else
    body += "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10, %r11}, [%r8];\n"
            "ldmatrix.sync.aligned.m8n8.x1.trans.shared::cta.b16 {%r14}, [%r9+" +
            b +
            "];\n"
            "mma.sync.aligned.m16n8k8.row.col.f32." +
            type + "." + type +
            ".f32 {%f1, %f2, %f3, %f4}, {%r10, %r11}, {%r14}, "
            "{%f9, %f9, %f9, %f9};\n";
  body += R"(shr.u32 %r20, %r1, 2;
and.b32 %r21, %r1, 3;
shl.b32 %r22, %r20, 3;
mad.lo.s32 %r22, %r21, 2, %r22;
mad.wide.u32 %rd7, %r22, 4, %rd2;
st.global.v2.f32 [%rd7], {%f1, %f2};
st.global.v2.f32 [%rd7+256], {%f3, %f4};
)";
  std::vector<Half> in(16 * k + k * 8);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = narrow<Half>((static_cast<int>(i * 37 % 101) - 50) / 8.0);
  std::vector<float> out(16 * 8);
  Memory memory;
  Launch launch{.entry = "k",
                .block = {32},
                .sharedBytes = 2048,
                .arguments = {memory.add(in.data(), in.size() * 2), memory.add(out.data(), 512)},
                .reportsUndefined = true};
  Module::parse(kernelText(body)).launch(launch, memory);
  for (uint32_t row = 0; row < 16; ++row)
    for (uint32_t column = 0; column < 8; ++column) {
      double sum = 1;
      for (uint32_t inner = 0; inner < k; ++inner)
        sum += double(widen(in[row * k + inner])) * widen(in[16 * k + inner * 8 + column]);
      EXPECT_EQ(out[row * 8 + column], static_cast<float>(sum)) << row << " " << column;
    }
}

TEST(PtxMatrices, ProductsOfBothTypesAndDepths) {
  checkProduct<BF16>("bf16", 16);
  checkProduct<F16>("f16", 16);
  checkProduct<BF16>("bf16", 8);
  checkProduct<F16>("f16", 8);
}

TEST(PtxMatrices, NeedTheWholeWarp) {
  std::string body =
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r1}, {%r1}, {%f1, %f2, %f3, %f4};";
  Module module = Module::parse(kernelText(body, 0));
  Memory memory;
  Fault fault = faultOf([&] { module.launch({.entry = "k", .block = {31}}, memory); });
  EXPECT_EQ(fault.check, Fault::Check::convergence);
  EXPECT_THAT(fault.what(), testing::HasSubstr("needs all 32 lanes of the warp"));
}

} // namespace
} // namespace espalier::emulator
