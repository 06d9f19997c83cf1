// Matrices distributed over the lanes of a warp: ldmatrix and mma.sync.
#include "test/emulator/block.h"
#include "test/emulator/ptx_memory.h"
#include "test/emulator/ptx_ops.h"

namespace espalier::emulator {
namespace {

// A matrix of ldmatrix has 8 rows of 16 bytes, whose addresses are in 8 lanes. Lane l gets elements 2 * (l % 4) and the
// next of row l / 4; transposed, it gets column l / 4 of rows 2 * (l % 4) and the next.
template <bool transposes> void loadMatrices(Warp &warp, const Instruction &i, uint32_t mask) {
  uint32_t matrices = i.outputs, used = matrices == 4 ? mask : mask & ((1u << matrices * 8) - 1);
  std::byte *rows[warpLanes];
  MemoryAccess(warp, i, 16, /*reads=*/true, /*writes=*/false).find(i.outputs, used, rows);
  for (uint32_t matrix = 0; matrix < matrices; ++matrix) {
    uint16_t values[8][8];
    for (uint32_t row = 0; row < 8; ++row)
      std::memcpy(values[row], rows[matrix * 8 + row], 16);
    Two<F16> result[warpLanes];
    for (uint32_t lane = 0; lane < warpLanes; ++lane) {
      uint32_t outer = lane / 4, inner = lane % 4 * 2;
      result[lane] = transposes ? Two<F16>{{values[inner][outer]}, {values[inner + 1][outer]}}
                                : Two<F16>{{values[outer][inner]}, {values[outer][inner + 1]}};
    }
    store(warp, i.operands[matrix], result, mask);
  }
}

void loadMatrixRule(Decoder &d) {
  d.need("sync");
  d.need("aligned");
  d.need("m8n8");
  int count = d.takeOneOf({"x1", "x2", "x4"});
  if (count < 0)
    d.fail("modifier .x1, .x2 or .x4 is missing");
  bool transposes = d.take("trans");
  d.instruction.space = takeSpace(d);
  if (d.instruction.space != Space::shared && d.instruction.space != Space::generic)
    d.fail("modifier .shared is missing");
  if (d.takeType() != Type::b16)
    d.fail("type must be .b16");
  d.outputs(Type::b32, 1u << count);
  d.address();
  d.instruction.flow = Flow::converge;
  d.instruction.members = allMembers;
  d.finish(transposes ? loadMatrices<true> : loadMatrices<false>, Type::b16);
}

/// D = A * B + C with A [16, k], B [k, 8], C and D [16, 8]; sums are computed in double and rounded once.
///
/// In registers with two elements, lane l holds: rows l / 4 (+ 8 in odd registers), columns 2 * (l % 4) (+ 8 in the
/// upper half of registers) of A; rows 2 * (l % 4) (+ 8), column l / 4 of B; rows l / 4 (+ 8), columns 2 * (l % 4) and
/// the next of C and D.
template <class Half, uint32_t k> void multiplyMatrices(Warp &warp, const Instruction &i, uint32_t mask) {
  constexpr uint32_t registersA = k / 4, registersB = k / 8;
  double a[16][k], b[k][8];
  for (uint32_t r = 0; r < registersA; ++r) {
    const Two<Half> *values = warp.lanes<Two<Half>>(i.operands[4 + r]);
    for (uint32_t lane = 0; lane < warpLanes; ++lane) {
      uint32_t row = lane / 4 + r % 2 * 8, column = lane % 4 * 2 + r / 2 * 8;
      a[row][column] = widen(values[lane].low);
      a[row][column + 1] = widen(values[lane].high);
    }
  }
  for (uint32_t r = 0; r < registersB; ++r) {
    const Two<Half> *values = warp.lanes<Two<Half>>(i.operands[4 + registersA + r]);
    for (uint32_t lane = 0; lane < warpLanes; ++lane) {
      uint32_t row = lane % 4 * 2 + r * 8;
      b[row][lane / 4] = widen(values[lane].low);
      b[row + 1][lane / 4] = widen(values[lane].high);
    }
  }
  float result[4][warpLanes];
  for (uint32_t r = 0; r < 4; ++r) {
    const float *c = warp.lanes<float>(i.operands[4 + registersA + registersB + r]);
    for (uint32_t lane = 0; lane < warpLanes; ++lane) {
      uint32_t row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
      double sum = c[lane];
      for (uint32_t inner = 0; inner < k; ++inner)
        sum += a[row][inner] * b[inner][column];
      result[r][lane] = static_cast<float>(sum);
    }
  }
  for (uint32_t r = 0; r < 4; ++r)
    store(warp, i.operands[r], result[r], mask);
}

void multiplyMatricesRule(Decoder &d) {
  d.need("sync");
  d.need("aligned");
  int shape = d.takeOneOf({"m16n8k16", "m16n8k8"});
  if (shape < 0)
    d.fail("shape must be .m16n8k16 or .m16n8k8");
  d.need("row");
  d.need("col");
  Type result = d.takeType(), a = d.takeType(), b = d.takeType(), c = d.takeType();
  if (result != Type::f32 || c != Type::f32 || a != b || (a != Type::bf16 && a != Type::f16))
    d.fail("types must be .f32 .bf16 .bf16 .f32 or .f32 .f16 .f16 .f32");
  d.outputs(Type::f32, 4);
  d.inputs(Type::b32, shape == 0 ? 4 : 2);
  d.inputs(Type::b32, shape == 0 ? 2 : 1);
  d.inputs(Type::f32, 4);
  d.instruction.flow = Flow::converge;
  d.instruction.members = allMembers;
  d.finish(a == Type::bf16 ? (shape == 0 ? multiplyMatrices<BF16, 16> : multiplyMatrices<BF16, 8>)
                           : (shape == 0 ? multiplyMatrices<F16, 16> : multiplyMatrices<F16, 8>),
           Type::f32);
}

} // namespace

void addMatrices(Rules &rules) {
  rules["ldmatrix"] = loadMatrixRule;
  rules["mma"] = multiplyMatricesRule;
}

} // namespace espalier::emulator
