// The constraints on plans, each stated once. The search drops candidates that violate them, and the import of run
// files maps the findings to the keys of the file.
#pragma once

#include "planner/problem.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::planner {

/// The most micro-batches of a step on one replica. Search time and the size of a plan grow with their number.
inline constexpr int64_t kMostMicroBatches = 1 << 16;

/// The facts of a run that constrain its plans. All of them are known before the model is profiled.
struct PlanLimits {
  std::string_view cluster = {};
  int devices = 0;         ///< 0: unknown
  bool hasHostLink = true; ///< whether state can be offloaded
  int layers = 0;          ///< 0: unknown
  int freeEnds = 2;        ///< chunks that need no layer, because they hold the embedding or the head
  int64_t globalBatch = 0; ///< 0: any
  std::span<const Divisibility> divisibility = {};
  bool knowsModel = true; ///< whether axes without an entry in `divisibility` split nothing

  /// Returns whether the model has experts, which an axis can split.
  bool hasExperts() const;
};

/// Returns the limits of a problem. They refer to the problem.
PlanLimits limitsOf(const Problem &problem);

/// A violated constraint.
struct Finding {
  std::string field;       ///< the pin to change, as a key of visitFields(); or "global_batch" or "seq_length"
  std::string reason;      ///< a sentence: "seq 64 is not a multiple of cp 3"
  int64_t got = 0;         ///< the value of the field
  int64_t wanted = 0;      ///< a value without this finding; 0 if none is known
  int64_t divides = 0;     ///< the field must divide this number; 0 if that is not the constraint
  std::string change = {}; ///< the way out in words, such as "True → False"

  /// Returns the way out behind the field's name, such as "3 → 2 or 4"; empty if none is known. `factor` multiplies the
  /// numbers of a key that counts in other units than the field.
  std::string wayOut(int64_t factor = 1) const;
};

/// Returns the constraints that these pins violate, whatever the free fields become. Does not check memory.
std::vector<Finding> check(Pins pins, const PlanLimits &limits);

/// Sets the axis and the number of micro-batches that the other pins determine.
void completePins(Pins &pins, const PlanLimits &limits);

/// Returns the divisors of `number` next to `value` as text, such as "5 or 10".
std::string nearestDivisors(int64_t number, int64_t value);

} // namespace espalier::planner
