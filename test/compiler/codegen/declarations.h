// Checks that launches match the declarations of their kernels.
#pragma once

#include "format/plan.pb.h"

#include <string>

namespace espalier::test {

/// Describes the first launch of the plan that differs from its kernel's declaration; returns an empty string if there
/// is none.
std::string undeclared(const rt::pb::Plan &plan);

} // namespace espalier::test
