// What makes two runs the same training: the model, which must agree, and what may change where the user says so. How
// the work is laid out over ranks is no part of it.
#pragma once

#include "runtime/plan.pb.h"

#include <map>
#include <string>
#include <vector>

namespace espalier::rt {

struct Fingerprint {
  std::string model;                        ///< digest of what the model computes
  std::map<std::string, std::string> terms; ///< "batch" -> "32 samples of 64 tokens", in words

  bool operator==(const Fingerprint &) const = default;
};

/// `data` is what the run reads, in words.
Fingerprint fingerprintOf(const pb::Plan &plan, const std::string &data);

/// The terms that differ, one sentence each: "batch: 32 samples of 64 tokens there, 16 samples of 64 tokens now".
std::vector<std::string> changedTerms(const Fingerprint &saved, const Fingerprint &now);

} // namespace espalier::rt
