// Changes of one field of a plan that leave it well-formed: what a fault of the compiler, or of a byte, would look
// like.
#pragma once

#include "runtime/plan.pb.h"

#include <random>
#include <string>

namespace espalier {

/// Changes one field of what says how data moves; every field of the schema is as likely as any other, however often it
/// occurs. Returns the kind of change, "Buffer.offset +1" for example; empty where the change that was drawn is none.
std::string mutate(rt::pb::Plan &plan, std::mt19937 &random);

} // namespace espalier
