// A subprogram is gone through once and leaves a summary: what it asks of the bytes that it finds, and what it leaves.
#pragma once

#include "runtime/verify/byte_state.h"
#include "runtime/verify/rules.h"

#include <functional>
#include <map>
#include <set>

namespace espalier::rt::verify {

/// A subprogram as the front end gives it.
struct Routine {
  std::vector<Step> steps;
  std::function<std::string(int instruction)> name;
};

/// Bytes of a region that were written and hold a value. Offsets are the region's, layers relative to the call.
struct Give {
  int region = 0;
  Span span;
  uint32_t value = 0;
  int32_t layer = 0;
  int64_t origin = 0;
  uint32_t tag = 0;
  uint32_t writes = 0; ///< how often these bytes were written
};

/// Bytes that are dead afterwards.
struct Clobber {
  int region = 0;
  Span span;
};

/// What is squared for the norm, with its weight.
struct Square {
  Operand operand;
  double weight = 0;
};

/// The hull of what is touched in a region.
struct Touched {
  int64_t begin = 0, end = 0;
  bool isWritten = false;
};

struct Summary {
  std::vector<Operand> needs;
  std::vector<Operand> terms; ///< of sums, in order
  std::vector<Give> gives;
  std::vector<Clobber> clobbers;
  std::vector<Square> squares;
  std::vector<std::pair<int, Operand>> leftOver; ///< written by an instruction for a reader, and read by nothing here
  std::vector<Touched> touched;                  ///< by region
  std::vector<uint32_t> transfers;               ///< started, in order
  std::set<uint32_t> updatedBuckets;             ///< whose stored values or state it writes
};

Summary summarize(const Routine &routine, const std::vector<ValueInfo> &values,
                  const std::vector<std::string> &regionNames, PlanErrors &errors);

/// Values that nothing needs from outside of a subprogram are dead at its end: their gives become clobbers.
void dropUnwanted(std::vector<Summary> &summaries, const std::vector<bool> &isWanted,
                  const std::vector<ValueInfo> &values);

} // namespace espalier::rt::verify
