// A subprogram is gone through once and leaves a summary: what it asks of the bytes that it finds, what it leaves, and
// its steps on resident values, which the play takes one by one.
#pragma once

#include "runtime/verify/byte_state.h"
#include "runtime/verify_rules.h"

#include <functional>
#include <map>
#include <set>

namespace espalier::rt::verify {

/// A subprogram as the front end gives it.
struct Routine {
  std::vector<int64_t> regionBytes; ///< by region
  std::vector<bool> isResident;     ///< by region: values live from entry to entry or are sums over micro-batches
  int workspace = 0;                ///< the region that is dead between subprograms
  std::vector<Step> steps;
  std::function<std::string(int instruction)> name;
};

/// Bytes of a region that one write left.
struct Give {
  int region = 0;
  Span span;
  uint32_t write = 0;
};

/// The hull of what is touched in a region.
struct Touched {
  int64_t begin = 0, end = 0;
  bool isWritten = false;
};

struct Summary {
  std::vector<Operand> needs;
  std::vector<Give> gives;
  std::vector<Step> resident;   ///< steps with operands in resident regions, and only these operands
  std::vector<Touched> touched; ///< by region
  std::function<std::string(int instruction)> name;
};

Summary summarize(const Routine &routine, const std::vector<std::string> &regionNames, PlanErrors &errors);

} // namespace espalier::rt::verify
