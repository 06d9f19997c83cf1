// `run --save-hf`: a folder of transformers beside each checkpoint.
#pragma once

#include "format/plan.pb.h"

#include <filesystem>

namespace espalier {

/// Throws PlanError if the checkpoints of the plan cannot be written for transformers.
void requireHfNames(const rt::pb::Plan &plan);

/// Writes DIR/hf-00000020 beside the checkpoint DIR/step-00000020, and removes such folders whose checkpoint is gone.
/// Adapters are added to the weights. Prints a warning if the folder cannot be written, because training goes on.
void saveHf(const std::filesystem::path &checkpoint) noexcept;

} // namespace espalier
