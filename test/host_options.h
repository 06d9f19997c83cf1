// Options of compilations whose plans run in the process of the test.
#pragma once

#include "compiler/driver.h"
#include "runtime/device/cpu/kernel_object.h"

namespace espalier {

/// Returns options for machine code of the instruction set level that runs on this processor. Other levels would cost
/// two thirds of the time in LLVM and are not run. Tests of compiler/codegen and of the commands compile all levels.
inline CompileOptions hostOptions() {
  CompileOptions options;
  options.onlyLevel = rt::hostLevelName();
  return options;
}

} // namespace espalier
