// Machine code carried by a plan: an ELF shared object mapped from memory, without LLVM.
#pragma once

#include "runtime/abi.h"
#include "runtime/plan.pb.h"

#include <array>
#include <string>
#include <string_view>

namespace espalier::rt {

/// A mapped shared object; unmapped when it goes.
class KernelObject {
public:
  /// Maps the object of the highest level that this processor has. Throws PlanError when none fits
  /// or it cannot be mapped.
  explicit KernelObject(const pb::Plan &plan);
  ~KernelObject();
  KernelObject(const KernelObject &) = delete;
  KernelObject &operator=(const KernelObject &) = delete;

  /// Throws PlanError when the symbol is missing.
  KernelFunction function(const std::string &symbol) const;

  /// The level chosen; empty for a plan without kernels.
  const std::string &level() const { return chosen; }

private:
  int file = -1; ///< open while it is mapped: its number is the name under which the linker knows it
  void *handle = nullptr;
  std::string chosen;
};

/// What plans have code for, in this order.
inline constexpr std::array<std::string_view, 3> cpuLevels = {"x86-64", "x86-64-v3", "x86-64-v4"};

/// 1, 3 or 4 for "x86-64", "x86-64-v3", "x86-64-v4"; 0 for any other name.
int levelNumber(const std::string &level);

/// The highest level that this processor has.
int hostLevel();

} // namespace espalier::rt
