// The values of a plan as the proof distinguishes them: slices and whole values, their layers and their buckets.
#pragma once

#include "runtime/verify/events.h"
#include "runtime/verify/rules.h"

#include <optional>

namespace espalier::rt::verify {

/// Derives the ValueInfo of every value of a plan.
class Values {
public:
  /// Analyzes the values of a plan.
  Values(const pb::Plan &plan, const Mesh &mesh);

  const ValueInfo &operator[](uint32_t value) const { return infos[value]; }
  /// Returns the properties of all values, by number.
  const std::vector<ValueInfo> &all() const { return infos; }

  /// Converts a buffer to an operand. The origin is not set if the buffer is a slice of the written value.
  Operand operandOf(const pb::Buffer &buffer, Access access) const;

  /// Returns the instance of a value at `layer` plus the layer of the call, in a RUN or transfer of the call for a
  /// micro-batch. Returns nothing for a value of a bucket that the call does not use.
  std::optional<Instance> instanceOf(uint32_t value, int32_t layer, const pb::Call &call, uint32_t microBatch) const;

private:
  void addBuckets();
  void followTransfers();
  bool inherit(const pb::Transfer &transfer, int pair);
  void findStageValues();
  void findSums();

  const pb::Plan &plan;
  const Mesh &mesh;
  std::vector<ValueInfo> infos;
};

} // namespace espalier::rt::verify
