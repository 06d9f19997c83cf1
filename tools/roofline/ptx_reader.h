// Translates the PTX text of a plan to instructions with numbered registers and the costs of their opcodes. It accepts
// unknown opcodes and registers without a declaration. The emulator in test/emulator rejects them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// A source operand of an instruction.
struct PtxOperand {
  enum class Kind : uint8_t { None, Register, Number, Parameter, ThreadIndex, BlockX, BlockY, Other };
  Kind kind = Kind::None;
  uint32_t number = 0; ///< index of a register or parameter
  int64_t value = 0;   ///< value of a constant
};

/// The execution unit that an instruction occupies.
enum class PtxUnit : uint8_t {
  None,    ///< register copies and parameter reads, which machine code does not have
  Integer, ///< 64-bit operations take two instructions
  Float,
  Special, ///< exp2, log2, reciprocals, roots
  Memory,
  Matrix,
  Control
};

/// One PTX instruction.
struct PtxInstruction {
  std::string_view opcode; ///< "ld.global.v4.u32"
  std::string_view base;   ///< "ld"
  PtxUnit unit = PtxUnit::Integer;
  int64_t slots = 1; ///< number of machine instructions
  int bits = 32;     ///< width of its type
  bool isSigned = false, isFloat = false, isWide = false;
  int64_t guard = -1; ///< register, -1 for none
  bool guardNegated = false;
  std::vector<uint32_t> results;     ///< registers
  std::array<PtxOperand, 4> sources; ///< of memory accesses, [0] is the address in global memory
  uint32_t target = 0;               ///< of a branch: an index of instructions
  int64_t globalBytes = 0;           ///< per lane
  bool isStore = false;
  int64_t flops = 0; ///< per lane; for warp-wide instructions, of a warp / 32
};

/// One kernel: its instructions and the number of its registers.
struct PtxKernel {
  std::vector<PtxInstruction> instructions;
  uint32_t registers = 0;
};

/// Returns the kernels of a text by symbol. They point into the text. Throws std::invalid_argument for a text that is
/// no PTX.
std::map<std::string, PtxKernel, std::less<>> readPtx(std::string_view text);

} // namespace espalier
