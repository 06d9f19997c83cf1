// The accesses of functions.def as the plan spells them.
#pragma once

#include "format/functions.h"
#include "format/plan.pb.h"

namespace espalier::rt {

/// Returns how a call accesses an operand. `overwrites` tells whether the call overwrites operands that it stores.
inline pb::Operand::Access planAccess(OperandSignature::Access access, bool overwrites) {
  using Access = OperandSignature::Access;
  switch (access) {
  case Access::Read:
    return pb::Operand::READ;
  case Access::Write:
    return pb::Operand::WRITE;
  case Access::Update:
    return pb::Operand::UPDATE;
  case Access::Add:
    return pb::Operand::ADD;
  case Access::Store:
    break;
  }
  return overwrites ? pb::Operand::WRITE : pb::Operand::ADD;
}

} // namespace espalier::rt
