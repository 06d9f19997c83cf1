// Identifies a training: the model, which must match, and terms that may change if the user accepts it. The parallel
// plan is not included.
#pragma once

#include "format/plan.pb.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The fingerprint of a training.
struct Fingerprint {
  std::string model;                        ///< digest of the model's computation
  std::map<std::string, std::string> terms; ///< readable: "batch" -> "32 samples of 64 tokens"

  bool operator==(const Fingerprint &) const = default;
};

/// Returns the fingerprint of a plan. `data` describes the data that the run reads.
Fingerprint fingerprintOf(const pb::Plan &plan, const std::string &data);

/// Returns the optimizer that the term `optimizer` of a fingerprint names.
pb::Optimizer optimizerOfText(std::string_view text);

/// Returns a sentence per term that differs: "batch: 32 samples of 64 tokens there, 16 samples of 64 tokens now".
std::vector<std::string> changedTerms(const Fingerprint &saved, const Fingerprint &now);

} // namespace espalier::rt
