#include "tools/run/signed_plan.h"

#include <fmt/format.h>

namespace espalier {

void addSignerOption(const Verb &command, bool &requiresSigner) {
  command.flag("--require-signed", requiresSigner,
               "refuse a plan that neither you nor a signer in ~/.config/espalier/known_signers has compiled");
}

void printNote(const rt::OwnedPlan &read) {
  if (!read.note.empty())
    fmt::print(stderr, "espalier: note: {}\n", read.note);
}

} // namespace espalier
