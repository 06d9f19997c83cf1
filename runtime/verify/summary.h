// Summarizes a subprogram: the bytes that it needs from outside, and the state that it leaves. Each subprogram is
// analyzed once.
#pragma once

#include "runtime/verify/byte_state.h"
#include "runtime/verify/rules.h"

#include <functional>
#include <map>
#include <set>

namespace espalier::rt::verify {

/// The steps of a subprogram, as the front end builds them.
struct Routine {
  std::vector<Step> steps;
  std::function<std::string(int instruction)> name;
};

/// A byte range that a subprogram writes and that holds a value at its end. Offsets are relative to the region, layers
/// to the call.
struct Give {
  int region = 0;
  Span span;
  uint32_t value = 0;
  int32_t layer = 0;
  int64_t origin = 0;
  uint32_t tag = 0;
  uint32_t writes = 0; ///< the number of writes to these bytes
};

/// A byte range that is dead at the end of the subprogram.
struct Clobber {
  int region = 0;
  Span span;
};

/// An operand whose squares are added to the gradient norm, with its weight.
struct Square {
  Operand operand;
  double weight = 0;
};

/// The hull of the bytes that a subprogram accesses in one region.
struct Touched {
  int64_t begin = 0, end = 0;
  bool isWritten = false;
};

/// The effect of a subprogram on the bytes of its regions.
struct Summary {
  std::vector<Operand> needs;
  std::vector<Operand> terms; ///< additions to sums, in order
  std::vector<Give> gives;
  std::vector<Clobber> clobbers;
  std::vector<Square> squares;
  std::vector<std::pair<int, Operand>> leftOver; ///< outputs that need a reader and have none in this subprogram
  std::vector<Touched> touched;                  ///< by region
  std::vector<uint32_t> transfers;               ///< started transfers, in order
  std::set<uint32_t> updatedBuckets;             ///< buckets whose stored values or state the subprogram writes
};

/// Analyzes the steps of a subprogram and returns its summary. Reports violations inside the subprogram to `errors`.
Summary summarize(const Routine &routine, const std::vector<ValueInfo> &values,
                  const std::vector<std::string> &regionNames, PlanErrors &errors);

/// Turns the gives of values that no other subprogram needs into clobbers, because these values are dead at the end.
void dropUnwanted(std::vector<Summary> &summaries, const std::vector<bool> &isWanted,
                  const std::vector<ValueInfo> &values);

} // namespace espalier::rt::verify
