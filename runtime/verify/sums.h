// Rule F: the terms that a sum must have before it is read, and the norm of the gradients.
#pragma once

#include "runtime/verify/program_view.h"

namespace espalier::rt::verify {

/// Computes the expected terms of the sums of an entry on a stage, and checks the gradient norm.
class Sums {
public:
  /// Prepares the sums of entry number `entry` on stage number `stage`.
  Sums(const ProgramView &view, int stage, int entry);

  /// Returns the number that one addition by a call's subprogram adds to the hash of a sum.
  static uint64_t term(uint32_t call, uint32_t microBatch);

  /// Returns the hash of all terms of a sum. `sum` is the value that is accumulated into. `instance` gives the layer
  /// and, for a sum of one micro-batch, the micro-batch.
  uint64_t expected(uint32_t sum, const Instance &instance);

  /// Records that a subprogram of a call has read these bytes for the norm.
  void square(uint32_t call, const Square &square, const Span &span);

  /// Records that a subprogram reads these values, which may include the norm.
  void read(const Summary &summary);

  /// Returns whether a subprogram may update buckets. An update needs the norm.
  bool knowsNorm() const { return hasReadNorm || normValues.empty(); }

  /// Checks that the norm contains each gradient total that the entry updates exactly once, and that each sum that the
  /// host reads has its terms.
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
  std::vector<std::set<uint32_t>> microBatches; ///< by role: the micro-batches for which the stage runs the role
  std::set<uint32_t> normValues;                ///< the values to which the stage adds squares
  bool hasReadNorm = false;
  std::map<std::pair<uint32_t, uint32_t>, Squared> norms; ///< by bucket and owner
};

} // namespace espalier::rt::verify
