// Changes of one field of a plan that leave it well-formed: what a fault of the compiler, or of a byte, would look
// like.
#pragma once

#include "runtime/plan.pb.h"

#include <random>
#include <string>

namespace espalier {

/// Changes one field of what says how data moves: actions, instructions, buffers, collectives, places, parameters.
/// Returns the kind of change, "buffer.offset" for example; empty where the plan has nothing of the kind that was
/// drawn.
std::string mutate(rt::pb::Plan &plan, std::mt19937 &random);

} // namespace espalier
