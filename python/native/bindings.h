// Declares the parts of the module espalier._native.
#pragma once

#include <nanobind/nanobind.h>

namespace espalier::python {

/// Adds `run`, which trains in this process.
void addRun(nanobind::module_ &module);

/// Adds `Checkpoint`, which returns the tensors of a checkpoint and their byte offsets.
void addCheckpoint(nanobind::module_ &module);

} // namespace espalier::python
