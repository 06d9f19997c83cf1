// `--device` of `run`, `generate` and `serve`: which device a plan is run on.
#pragma once

#include "runtime/plan.pb.h"

#include <string>

namespace espalier {

/// Refuses, by PlanError, a device that `plan`, the file at `file`, is not compiled for; for "emulated" puts the
/// libraries of the emulated GPU in the place of the driver's and cuBLASLt's. Empty: the device of the plan's target.
void chooseDevice(const std::string &device, const rt::pb::Plan &plan, const std::string &file);

/// Puts the libraries of the emulated GPU in the place of the driver's, cuBLASLt's and NCCL's, with so many devices
/// unless the environment says otherwise. Throws PlanError where they are not built.
void loadEmulatedDevice(int devices);

} // namespace espalier
