// Runs one subprogram of a plan in this process. Kernels come from the plan's shared object; for GPUs, the emulator
// runs the plan's PTX. Library calls are plain loops. Every region is one buffer with guard bytes at its end.
#pragma once

#include "format/abi.h"
#include "format/plan.pb.h"
#include "test/compiler/codegen/reference.h"
#include "test/emulator/emulator.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier::test {

/// Returns the levels that this processor supports, lowest first.
std::vector<std::string> hostLevels();

/// The level of GPU kernels, which the emulator runs.
inline constexpr const char *gpuLevel = "sm_80";
/// Returns the levels of this processor, then the GPU level.
std::vector<std::string> allLevels();

/// A loaded shared object of a plan. The destructor unloads it.
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

  /// Writes or reads elements at an offset of a region, given by its number in exec.
  void write(int region, uint64_t offset, rt::pb::DataType type, const Numbers &numbers);
  Numbers read(int region, uint64_t offset, rt::pb::DataType type, size_t count);

  /// Runs all instructions. Splits kernels into ranges as several threads would. Fails the test if a write exceeds a
  /// region.
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
  /// Fails the test if a byte outside of the subprogram's buffers was written.
  void checkEnds(const rt::pb::Subprogram &subprogram);
  double element(const rt::pb::LibraryCall &call, int buffer, int64_t index);

  const rt::pb::Plan &plan;
  LoadedObject object;
  std::optional<emulator::Module> text;
  emulator::Memory memory;
  std::map<int, uint64_t> deviceAddresses; ///< by region
  Surroundings surroundings;
  std::map<int, std::vector<char>> regions;
  std::map<int, uint64_t> written; ///< the end of the bytes that write() has filled, by region
};

} // namespace espalier::test
