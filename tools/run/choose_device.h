// Option `--device` of `run`, `generate` and `serve`: the device that runs a plan.
#pragma once

#include "format/plan.pb.h"

#include <string>

namespace espalier {

/// Throws PlanError if `plan` (read from `file`) is not compiled for `device`. For "emulated", replaces the driver and
/// cuBLASLt by the libraries of the emulated GPU. An empty `device` means the target of the plan.
void chooseDevice(const std::string &device, const rt::pb::Plan &plan, const std::string &file);

/// Throws PlanError if a plan for `target` cannot run on `device` here: another target, or libraries that are not
/// there. Loads nothing that does not survive a fork.
void requireDevice(const std::string &device, const std::string &target);

/// Replaces the driver, cuBLASLt and NCCL by the libraries of the emulated GPU, with `devices` devices unless the
/// environment sets a number. Throws PlanError if the libraries are not built.
void loadEmulatedDevice(int devices);

} // namespace espalier
