// The parts of the module espalier._native.
#pragma once

#include <nanobind/nanobind.h>

namespace espalier::python {

/// Adds `run`: a training run in this process.
void addRun(nanobind::module_ &module);

/// Adds `Checkpoint`: a checkpoint's contents and where its bytes lie.
void addCheckpoint(nanobind::module_ &module);

} // namespace espalier::python
