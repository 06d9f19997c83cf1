// Whether launches are what their kernels declare.
#pragma once

#include "runtime/plan.pb.h"

#include <string>

namespace espalier::test {

/// The first launch of the plan that differs from its kernel's declaration, in words; empty when there is none.
std::string undeclared(const rt::pb::Plan &plan);

} // namespace espalier::test
