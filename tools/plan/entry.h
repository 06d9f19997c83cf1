// The entry point of the compiler's library, and what the command provides to it. The command looks the function up by
// name, so that `run` starts without LLVM.
#pragma once

#include "compiler/kernel_runner.h"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// Functions of the runtime that the command passes to the compiler, which does not link the runtime.
struct CompilerServices {
  /// Opens a device for checks of GPU kernels.
  OpenKernelRunner openKernelRunner;
  /// Returns the errors of a plan as sentences; empty for a valid plan.
  std::function<std::vector<std::string>(const rt::pb::Plan &)> verifyPlan;
  /// Writes the user's signature beside a plan file of these bytes. Returns why not, or an empty string.
  std::function<std::string(const std::filesystem::path &plan, std::string_view bytes)> signPlan;
};

/// The name of the function in the library.
constexpr const char *compilerEntryName = "espalierCompilerMain";

/// Takes a verb with its arguments. Returns the exit code.
using CompilerEntry = int (*)(int argc, char **argv, const CompilerServices &services);

} // namespace espalier
