// Values of a plan as the proof tells them apart: pieces and the whole, whose layer they have, whose bucket they are.
#pragma once

#include "runtime/verify/events.h"
#include "runtime/verify/rules.h"

#include <optional>

namespace espalier::rt::verify {

class Values {
public:
  Values(const pb::Plan &plan, const Mesh &mesh);

  const ValueInfo &operator[](uint32_t value) const { return infos[value]; }
  /// All of them, by number.
  const std::vector<ValueInfo> &all() const { return infos; }

  /// A buffer as an operand; without `origin` where it is a piece of what is written.
  Operand operandOf(const pb::Buffer &buffer, Access access) const;

  /// Which instance a value of `layer` + the call's is, of a RUN or flight of the call for a micro-batch. Nothing where
  /// it is a bucket's that the call does not use.
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
