// A parsed PTX text: kernels as compact instructions whose operands are offsets in a warp's register file.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "test/emulator/emulator.h"

namespace espalier::emulator {

class Warp;
struct Instruction;

inline constexpr uint32_t warpLanes = 32;
inline constexpr uint32_t noSlot = ~0u;
inline constexpr uint8_t allMembers = 255; // all lanes

// The first generic addresses of a block's shared memory and of a thread's local memory.
inline constexpr uint64_t sharedWindow = uint64_t(1) << 60;
inline constexpr uint64_t localWindow = uint64_t(2) << 60;

enum class Type : uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64
};
/// Returns the type of a name without its dot, or nothing if it is not a type.
Type typeNamed(std::string_view name);
uint32_t bytesOf(Type type);
bool isSigned(Type type);
bool isFloating(Type type);

enum class Space : uint8_t { generic, global, shared, local, parameter };

/// The 32 values of an operand in a warp's register file: one per lane, each of `bytes`. A predicate is one word with a
/// bit per lane. Constants and special registers also have slots, which are filled when a warp starts.
struct Slot {
  uint32_t offset = noSlot;
  uint32_t bytes = 0;
};

/// Executes an instruction for the lanes in the mask.
using Execute = void (*)(Warp &, const Instruction &, uint32_t mask);

/// The effect of an instruction on control flow.
enum class Flow : uint8_t {
  next,     // none
  branch,   // to `target` if the guard holds
  exit,     // ends the lanes
  barrier,  // waits for the block
  converge, // waits for the lanes of the warp in operand `members`
};

struct Instruction {
  Execute execute = nullptr;
  Flow flow = Flow::next;
  bool guardNegated = false;
  bool nonCoherent = false; // ld.global.nc
  Space space = Space::generic;
  Type type = Type::none; // element type of memory instructions
  uint8_t outputs = 0;    // operands[0, outputs) are written
  uint8_t inputs = 0;     // operands[outputs, outputs + inputs) are read
  uint8_t members = 0;    // operand with the participating lanes of Flow::converge
  uint8_t variant = 0;    // rounding of cvt, comparison, mode of shfl, operation of atom and vote, bytes of cp.async
  Slot guard = {};
  std::array<Slot, 16> operands = {};
  int64_t immediate = 0;    // offset of an address, table of lop3, groups of cp.async.wait_group
  int64_t sourceOffset = 0; // of cp.async's second address
  uint32_t target = 0;      // branch target, an instruction index
  uint32_t line = 0;
};

/// A constant or special register, `bytes` wide, stored in its slot when a warp starts.
struct Fill {
  enum class Source : uint8_t { value, tid, ntid, ctaid, nctaid, lane, warp, warps };
  Slot slot;
  Source source = Source::value;
  uint8_t axis = 0;
  uint64_t value = 0;
};

struct Parameter {
  std::string name;
  uint32_t bytes, offset; // within the parameter block
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<Instruction> instructions;
  std::vector<std::string> opcodes; // of each instruction, as written in the text
  std::vector<Fill> fills;
  uint32_t fileBytes = 0;   // size of a warp's register file
  uint32_t sharedBytes = 0; // static; dynamic shared memory follows
  uint32_t localBytes = 0;  // per thread
  uint32_t maxThreads = 0, requiredThreads = 0;
  uint32_t registers = 0; // 32-bit registers per thread
};

struct Program {
  uint32_t target = 0;  // sm_80 is 80
  uint32_t version = 0; // of the PTX language: 8.0 is 80
  std::map<std::string, Entry> entries;
};

Program parseProgram(std::string_view text);

} // namespace espalier::emulator
