// Rule F: what a sum must hold before it is read, and the norm of the gradients.
#pragma once

#include "runtime/verify/program_view.h"

namespace espalier::rt::verify {

class Sums {
public:
  Sums(const ProgramView &view, int stage, int entry);

  /// What one addition by a call's subprogram adds to a sum's hash.
  static uint64_t term(uint32_t call, uint32_t microBatch);

  /// The hash of all terms of a sum: `sum` the value that is added to, `instance` whose and, where it is one
  /// micro-batch's, of which.
  uint64_t expected(uint32_t sum, const Instance &instance);

  /// A subprogram of a call has read these bytes for the norm.
  void square(uint32_t call, const Square &square, const Span &span);

  /// A subprogram reads these values: the norm among them?
  void read(const Summary &summary);

  /// A subprogram updates buckets, which needs the norm.
  bool knowsNorm() const { return hasReadNorm || normValues.empty(); }

  /// Each total of a bucket that the entry updates is in the norm once, and each sum that the host reads has terms.
  void check(const std::function<void(std::string)> &add) const;

private:
  struct Squared {
    std::vector<Span> spans;
    bool isWeightWrong = false;
  };
  void countRoles();
  bool isOfOthers(uint32_t role) const;
  bool isCounted(uint32_t sum) const;
  uint64_t expectedGradient(const ValueInfo &info, const Instance &instance) const;
  uint64_t expectedStatistic(uint32_t sum) const;
  void checkNorm(const pb::Call &call, const pb::BucketUse &use, const std::function<void(std::string)> &add) const;
  void checkStatistics(const std::function<void(std::string)> &add) const;

  const ProgramView &view;
  const pb::Stage &stage;
  const pb::Entry &entry;
  const int entryIndex;
  std::map<std::tuple<uint32_t, int32_t, uint32_t>, uint64_t> known; ///< by sum, layer and micro-batch
  std::vector<std::set<uint32_t>> microBatches;                      ///< by role: those that the stage runs it for
  std::set<uint32_t> normValues;                                     ///< to which the stage adds squares
  bool hasReadNorm = false;
  std::map<std::pair<uint32_t, uint32_t>, Squared> norms; ///< by bucket and owner
};

} // namespace espalier::rt::verify
