// A CUDA device for machines without one: reads PTX text and executes its kernels, warp by warp, over host memory.
// This is the whole interface for tests of emitted kernels; the doubles of libcuda and libcublasLt stand on it.
//
//   Memory memory;
//   std::vector<float> x(1000);
//   uint64_t address = memory.add(x.data(), x.size() * 4, "x");
//   Module module = Module::parse(text);
//   module.launch({.entry = "scale", .grid = {4}, .block = {256}, .arguments = {address, 1000}}, memory);
//
// Whatever a kernel does that a device would refuse, or would let pass and be wrong, is a Fault.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "test/emulator/memory.h"

namespace espalier::emulator {

/// What a text or a launch did wrong. The message holds kernel, line of the PTX text, block, thread and fault.
class Fault : public std::runtime_error {
public:
  enum class Check { syntax, launch, bounds, alignment, barrier, race, undefined, convergence, other };
  Fault(Check check, std::string kernel, uint32_t line, const std::string &what);
  const Check check;
  const std::string kernel; // "" for the text outside of kernels
  const uint32_t line;      // of the PTX text, from 1; 0 where there is none
};

struct Dim {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  std::string entry = {};
  Dim grid = {}, block = {};
  uint32_t sharedBytes = 0;             // dynamic shared memory of a block
  std::vector<uint64_t> arguments = {}; // one per parameter; a parameter of fewer bytes takes the low ones
  bool reportsUndefined = false;        // reading a register or shared memory that nothing has written is a Fault
};

/// What a launch has done.
struct Report {
  uint64_t instructions = 0;      // executed, counted once per warp
  Ranges reads = {}, writes = {}; // bytes of global memory
};

/// What the text says of a kernel.
struct EntryInfo {
  std::string name;
  std::vector<uint32_t> parameterBytes = {};
  uint32_t sharedBytes = 0; // static
  uint32_t localBytes = 0;  // of a thread
  uint32_t maxThreads = 0;  // of .maxntid; 0 where there is none
  uint32_t registers = 0;   // bytes of a thread's registers / 4, as declared: before any allocation
};

struct Program;

/// A PTX text, read and checked: an opcode, modifier or directive that is not known is a Fault.
class Module {
public:
  static Module parse(std::string_view text);
  ~Module();
  Module(Module &&) noexcept;
  Module &operator=(Module &&) noexcept;

  std::vector<EntryInfo> entries() const;
  /// Of .target: sm_80 is 80.
  uint32_t target() const;
  /// Of .version: 8.0 is 80.
  uint32_t version() const;
  /// What launch() refuses before it begins.
  void check(const Launch &launch) const;
  /// Runs every block of the grid, one after another.
  Report launch(const Launch &launch, Memory &memory) const;

private:
  explicit Module(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program;
};

} // namespace espalier::emulator
