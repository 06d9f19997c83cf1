// The two directions of a conversion: tensors of others into our parameters, and back. A parameter or a tensor is made
// when its turn to be written comes, so that few of them are in memory.
#pragma once

#include "runtime/checkpoint/convert/names.h"
#include "runtime/checkpoint/convert/native.h"
#include "runtime/checkpoint/convert/weight_files.h"

namespace espalier::rt {

/// A source and what its tensors mean.
struct HeldTensors {
  const WeightSource *source = nullptr;
  std::vector<ForeignTensor> tensors;
};

/// How each parameter is made of the tensors of all holders. Throws PlanError, naming file and tensor, where one is
/// unknown, of another shape or type, or missing. A tensor that holds a part again must hold the same (checked when it
/// is made).
std::vector<NewParameter> parametersOf(const NameMap &names, std::vector<HeldTensors> holders);

/// The tensors that a share writes, of the parameters of `source`; tied ones where `writesTied`. Both outlive them.
std::vector<WrittenTensor> tensorsOf(const NameMap &names, const NativeSource &source,
                                     std::span<const ForeignTensor> tensors, bool writesTied);

} // namespace espalier::rt
