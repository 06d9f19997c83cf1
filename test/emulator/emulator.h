// An emulated CUDA device: parses PTX and executes its kernels, warp by warp, on host memory. This is the complete
// interface for tests of emitted kernels; the doubles of libcuda and libcublasLt build on it.
//
//   Memory memory;
//   std::vector<float> x(1000);
//   uint64_t address = memory.add(x.data(), x.size() * 4, "x");
//   Module module = Module::parse(text);
//   module.launch({.entry = "scale", .grid = {4}, .block = {256}, .arguments = {address, 1000}}, memory);
//
// A Fault reports whatever a device would refuse, or would execute with a wrong result.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "test/emulator/memory.h"

namespace espalier::emulator {

/// An error of a text or launch. The message has kernel, line of the PTX text, block, thread and the error.
class Fault : public std::runtime_error {
public:
  enum class Check { syntax, launch, bounds, alignment, barrier, race, undefined, convergence, other };
  Fault(Check check, std::string kernel, uint32_t line, const std::string &what);
  const Check check;
  const std::string kernel; // empty for text outside of kernels
  const uint32_t line;      // of the PTX text, from 1; 0 for none
};

struct Dim {
  uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
  std::string entry = {};
  Dim grid = {}, block = {};
  uint32_t sharedBytes = 0;             // dynamic shared memory of a block
  std::vector<uint64_t> arguments = {}; // one per parameter; smaller parameters take the low bytes
  bool reportsUndefined = false;        // whether reading an unwritten register or unwritten shared memory is a Fault
};

/// The statistics of a launch.
struct Report {
  uint64_t instructions = 0;      // executed, counted once per warp
  Ranges reads = {}, writes = {}; // bytes of global memory
};

/// The properties of a kernel in the text.
struct EntryInfo {
  std::string name;
  std::vector<uint32_t> parameterBytes = {};
  uint32_t sharedBytes = 0; // static
  uint32_t localBytes = 0;  // per thread
  uint32_t maxThreads = 0;  // from .maxntid; 0 if missing
  uint32_t registers = 0;   // declared 32-bit registers per thread, before register allocation
};

struct Program;

/// A parsed and checked PTX text. An unknown opcode, modifier or directive is a Fault.
class Module {
public:
  static Module parse(std::string_view text);
  ~Module();
  Module(Module &&) noexcept;
  Module &operator=(Module &&) noexcept;

  std::vector<EntryInfo> entries() const;
  /// Returns the number of .target: sm_80 is 80.
  uint32_t target() const;
  /// Returns the number of .version: 8.0 is 80.
  uint32_t version() const;
  /// Checks a launch without running it; throws the same Fault as launch().
  void check(const Launch &launch) const;
  /// Runs every block of the grid, one after another.
  Report launch(const Launch &launch, Memory &memory) const;

private:
  explicit Module(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program;
};

} // namespace espalier::emulator
