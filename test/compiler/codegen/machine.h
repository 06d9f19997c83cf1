// A small machine that runs one subprogram of a plan in this process: kernels from the plan's shared object or, for
// GPUs, its text in the emulator; library calls as plain loops. Every region is one buffer with guard bytes behind it.
#pragma once

#include "runtime/abi.h"
#include "runtime/plan.pb.h"
#include "test/compiler/codegen/reference.h"
#include "test/emulator/emulator.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier::test {

/// The levels that this processor has, lowest first.
std::vector<std::string> hostLevels();

/// What kernels for GPUs are compiled for; the emulator runs it.
inline constexpr const char *gpuLevel = "sm_80";
/// Those of this processor, then that of GPUs.
std::vector<std::string> allLevels();

/// A shared object of a plan, loaded; unloaded when it goes.
class LoadedObject {
public:
  LoadedObject(const rt::pb::Plan &plan, const std::string &level);
  ~LoadedObject();
  LoadedObject(const LoadedObject &) = delete;
  LoadedObject &operator=(const LoadedObject &) = delete;
  rt::KernelFunction function(const std::string &symbol) const;

private:
  void *handle = nullptr;
};

class Machine {
public:
  Machine(const rt::pb::Plan &plan, const std::string &level, const Surroundings &surroundings);

  /// Fills or reads elements at an offset of a region, by its number in exec.
  void write(int region, uint64_t offset, rt::pb::DataType type, const Numbers &numbers);
  Numbers read(int region, uint64_t offset, rt::pb::DataType type, size_t count);

  /// Runs all instructions, kernels in chunks as several threads would. Fails the test on a write past a region.
  void run(const std::string &subprogram);

private:
  void launch(const rt::pb::Launch &launch);
  void launchText(const rt::pb::Launch &launch);
  void call(const rt::pb::LibraryCall &call);
  void matmul(const rt::pb::LibraryCall &call);
  char *address(const rt::pb::Buffer &buffer);
  rt::pb::DataType typeOf(const rt::pb::Buffer &buffer) const;
  int64_t value(const rt::pb::Affine &scalar) const;
  bool adds(const rt::pb::LibraryCall &call) const;
  /// Fails the test if something beyond the subprogram's buffers was written.
  void checkEnds(const rt::pb::Subprogram &subprogram);
  double element(const rt::pb::LibraryCall &call, int buffer, int64_t index);

  const rt::pb::Plan &plan;
  LoadedObject object;
  std::optional<emulator::Module> text;
  emulator::Memory memory;
  std::map<int, uint64_t> deviceAddresses; ///< of regions
  Surroundings surroundings;
  std::map<int, std::vector<char>> regions;
  std::map<int, uint64_t> written; ///< by `write`: so far
};

} // namespace espalier::test
