// Machine code from a plan: an ELF shared object mapped from memory. LLVM is not needed.
#pragma once

#include "format/abi.h"
#include "format/plan.pb.h"

#include <array>
#include <string>
#include <string_view>

namespace espalier::rt {

/// A mapped shared object, unmapped by the destructor.
class KernelObject {
public:
  /// Maps the object of the highest level that this processor supports. Throws PlanError if no object fits or mapping
  /// fails.
  explicit KernelObject(const pb::Plan &plan);
  ~KernelObject();
  KernelObject(const KernelObject &) = delete;
  KernelObject &operator=(const KernelObject &) = delete;

  /// Returns the function of this name. Throws PlanError if it is missing.
  KernelFunction function(const std::string &symbol) const;

  /// Returns the chosen level; empty for a plan without kernels.
  const std::string &level() const { return chosen; }

private:
  int file = -1; ///< open while mapped, because the dynamic linker identifies the object by its path
  void *handle = nullptr;
  std::string chosen;
};

/// The levels that plans contain code for, in this order.
inline constexpr std::array<std::string_view, 3> cpuLevels = {"x86-64", "x86-64-v3", "x86-64-v4"};

/// Returns 1, 3 or 4 for "x86-64", "x86-64-v3", "x86-64-v4"; 0 for any other name.
int levelNumber(const std::string &level);

/// Returns the number of the highest level that this processor supports.
int hostLevel();

/// Returns the name of the highest level that this processor supports.
std::string hostLevelName();

} // namespace espalier::rt
