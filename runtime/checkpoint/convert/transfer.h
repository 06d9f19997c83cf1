// The two directions of a conversion: foreign tensors to our parameters, and back. Each parameter or tensor is made
// when it is written, so that few are in memory at a time.
#pragma once

#include "runtime/checkpoint/convert/names.h"
#include "runtime/checkpoint/convert/native.h"
#include "runtime/checkpoint/convert/weight_files.h"

namespace espalier::rt {

/// A source and the meaning of its tensors.
struct HeldTensors {
  const WeightSource *source = nullptr;
  std::vector<ForeignTensor> tensors;
};

/// Returns how to assemble each parameter from the tensors of all holders. Throws PlanError, naming file and tensor, if
/// one is unknown, missing, or of another shape or type. Copies of a part must be equal, which is checked when they are
/// read.
std::vector<NewParameter> parametersOf(const NameMap &names, std::vector<HeldTensors> holders);

/// Returns the tensors that a share writes from `source`, with tied ones if `writesTied`. Both arguments must outlive
/// them.
std::vector<WrittenTensor> tensorsOf(const NameMap &names, const NativeSource &source,
                                     std::span<const ForeignTensor> tensors, bool writesTied);

} // namespace espalier::rt
