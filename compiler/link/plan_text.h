// Prints a plan for people and tests.
#pragma once

#include "format/plan.pb.h"

#include <string>

namespace espalier {

/// Returns the plan as protobuf text, without machine code. The plan refers to entries of its tables by index; a
/// comment behind the message gives their names: `flights {  # out`. The text is the same for equal plans.
std::string planText(const rt::pb::Plan &plan);

} // namespace espalier
