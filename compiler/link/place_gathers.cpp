#include "compiler/link/place_gathers.h"

#include "compiler/link/action_writer.h"
#include "compiler/link/gradient_terms.h"

#include <map>
#include <set>

namespace espalier {

using namespace rt::pb;

WholeSlot wholeSlot(const Stage &stage, uint32_t call, exec::Region region) {
  auto isIt = [&](const Binding &binding) { return binding.region() == static_cast<uint32_t>(region); };
  uint32_t place = llvm::find_if(stage.calls(static_cast<int>(call)).bindings(), isIt)->place();
  uint32_t lifetime = stage.places(static_cast<int>(place)).lifetime();
  return {place, slotOf(stage.lifetimes(static_cast<int>(lifetime)), call, /*microBatch=*/0)};
}

namespace {

class GatherPlacer {
public:
  GatherPlacer(const Stage &stage, const Plan &plan, llvm::ArrayRef<BucketTransfers> buckets)
      : stage(stage), buckets(buckets), reads(gatheredReads(plan)) {
    for (auto [number, chunk] : llvm::enumerate(stage.chunks()))
      chunkOf.insert(chunkOf.end(), chunk.calls(), static_cast<int>(number));
  }

  Gathers place(llvm::ArrayRef<CallRun> runs) {
    made.starts.resize(runs.size() + 1);
    made.waits.resize(runs.size() + 1);
    for (auto [number, run] : llvm::enumerate(runs))
      if (uint32_t program = stage.calls(static_cast<int>(run.call)).programs(static_cast<int>(run.role));
          program > 0 && !reads[program - 1].empty())
        read(run, number, reads[program - 1]);
    return std::move(made);
  }

private:
  static constexpr size_t mostAhead = 2;

  /// The contents of a ring slot, and the index of the RUN after its last reader.
  struct Slot {
    uint32_t call = 0;
    std::set<uint32_t> buckets;
    size_t freeFrom = 0;
  };

  void read(const CallRun &run, size_t number, const std::set<uint32_t> &wanted) {
    WholeSlot at = wholeSlot(stage, run.call, exec::Region::WholeParameters);
    Slot &slot = slots[at];
    bool isShared =
        stage.places(static_cast<int>(at.first)).lifetime() != 0; // several layer calls use the slots in turn
    if (isShared && slot.call != run.call)
      slot.buckets.clear();
    slot.call = run.call;
    for (uint32_t bucket : wanted)
      if (slot.buckets.insert(bucket).second) {
        uint32_t call = updaterOf(run.call, bucket);
        BucketGather gather{buckets[bucket].gather, chunkOf[call], call, run.microBatch};
        made.starts[std::max(slot.freeFrom, number - std::min(number, mostAhead))].push_back(gather);
        made.waits[number].push_back(gather);
      }
    slot.freeFrom = number + 1;
  }

  /// Returns the layer call of this stage that has the same owner's bucket and updates it.
  uint32_t updaterOf(uint32_t call, uint32_t bucket) const {
    auto useIn = [&](uint32_t other) {
      const auto &uses = stage.calls(static_cast<int>(other)).buckets();
      auto found = llvm::find_if(uses, [&](const BucketUse &use) { return use.bucket() == bucket; });
      return found == uses.end() ? nullptr : &*found;
    };
    uint32_t owner = useIn(call)->owner();
    for (uint32_t other = 0; other < chunkOf.size(); ++other)
      if (const BucketUse *use = useIn(other); use && use->owner() == owner && use->updates())
        return other;
    return call;
  }

  const Stage &stage;
  llvm::ArrayRef<BucketTransfers> buckets;
  std::vector<std::set<uint32_t>> reads; ///< by subprogram
  std::vector<int> chunkOf;              ///< by layer call
  std::map<WholeSlot, Slot> slots;
  Gathers made;
};

} // namespace

Gathers placeGathers(const Stage &stage, const Plan &plan, llvm::ArrayRef<BucketTransfers> buckets,
                     llvm::ArrayRef<CallRun> runs) {
  return GatherPlacer(stage, plan, buckets).place(runs);
}

} // namespace espalier
