// Plans that this machine's user knows the signer of: --require-signed, and the note about others.
#pragma once

#include "runtime/plan_signature.h"
#include "tools/command_line/command_line.h"

namespace espalier {

/// Adds --require-signed.
void addSignerOption(const Verb &command, bool &requiresSigner);

/// Prints what the user should know about the origin of a plan, if there is anything.
void printNote(const rt::OwnedPlan &read);

} // namespace espalier
