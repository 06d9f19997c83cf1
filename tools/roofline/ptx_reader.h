// The PTX text of a plan as instructions whose registers are numbers. It reads what the compiler emits, one entry after
// another; test/emulator has the interpreter that refuses what is wrong.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// A source of an instruction.
struct PtxOperand {
  enum class Kind : uint8_t { None, Register, Number, Parameter, ThreadIndex, BlockX, BlockY, Other };
  Kind kind = Kind::None;
  uint32_t number = 0; ///< of a register or parameter
  int64_t value = 0;   ///< of a number
};

/// The part of the processor that an instruction keeps busy.
enum class PtxUnit : uint8_t {
  None,    ///< copies between registers and reads of parameters: gone in machine code
  Integer, ///< 64 bits take two instructions
  Float,
  Special, ///< exp2, log2, reciprocals, roots
  Memory,
  Matrix,
  Control
};

struct PtxInstruction {
  std::string_view opcode; ///< "ld.global.v4.u32"
  std::string_view base;   ///< "ld"
  PtxUnit unit = PtxUnit::Integer;
  int64_t slots = 1; ///< machine instructions that it becomes
  int bits = 32;     ///< of its type
  bool isSigned = false, isFloat = false, isWide = false;
  int64_t guard = -1; ///< register, -1 for none
  bool guardNegated = false;
  std::vector<uint32_t> results;     ///< registers
  std::array<PtxOperand, 4> sources; ///< of memory accesses [0] is the address in global memory
  uint32_t target = 0;               ///< of a branch: an index of instructions
  int64_t globalBytes = 0;           ///< of each lane
  bool isStore = false;
  int64_t flops = 0; ///< of each lane; of a warp / 32 where the warp works together
};

struct PtxKernel {
  std::vector<PtxInstruction> instructions;
  uint32_t registers = 0;
};

/// The kernels of a text by symbol. They point into it. Throws std::invalid_argument where a statement is no PTX.
std::map<std::string, PtxKernel, std::less<>> readPtx(std::string_view text);

} // namespace espalier
