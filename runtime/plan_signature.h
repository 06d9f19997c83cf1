// Signatures of plans. `compile` writes a signature beside the plan, X.plan.sig, so that the bytes of a plan depend on
// its input alone. The signature is Ed25519 over the SHA-256 digest of the plan file; OpenSSL computes both.
//
// X.plan.sig has two lines: "NAME PUBLIC_KEY" and "SIGNATURE", both in hexadecimal digits. Its first line, added to the
// file known_signers of the user's folder, makes the signer known.
#pragma once

#include "format/plan_file.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace espalier::rt {

/// Signs the plan file `plan` of the given bytes with the user's key, which is made at first use in
/// $XDG_CONFIG_HOME/espalier, or in ~/.config/espalier. Removes an older signature of the file. Returns why the plan is
/// not signed, or an empty string.
std::string signPlan(const std::filesystem::path &plan, std::string_view bytes);

/// The signer of a plan, as far as the user knows it.
struct PlanSigner {
  std::string name;     ///< empty: no valid signature
  bool isKnown = false; ///< the user, or one of known_signers
  std::string fault;    ///< why the signer is not known; empty if it is
};

/// Returns the signer of a plan file of the given bytes.
PlanSigner signerOf(const std::filesystem::path &plan, std::string_view bytes);

/// A plan that has been read, and what the user should know about its origin.
struct OwnedPlan {
  pb::Plan plan;
  std::string note; ///< empty: a known signer, or a user who has no key and knows nobody
};

/// Reads a plan as readPlan() does. Throws PlanError if `requiresSigner` and no known signer has signed these bytes.
OwnedPlan readSignedPlan(const std::filesystem::path &file, bool requiresSigner);

} // namespace espalier::rt
