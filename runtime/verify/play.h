// Simulates the instruction stream of a stage in an entry with summaries; one rank represents all ranks of the stage.
// Checks rule C. entries.cpp holds the beginning and the end of an entry, rule J.
#pragma once

#include "runtime/verify/byte_state.h"
#include "runtime/verify/sums.h"

#include <array>

namespace espalier::rt::verify {

/// Simulates one entry on one stage and reports violations of rules C, F and J.
class Play {
public:
  /// Prepares the simulation of entry number `entry` on stage number `stage`.
  Play(const ProgramView &view, int stage, int entry, PlanErrors &errors);

  /// Runs the simulation from the first action to the end of the entry.
  void play();

private:
  /// The start address of a region of the current call.
  struct Where {
    int memory = 0;
    int64_t base = 0;
  };
  /// A region as a call binds it.
  struct Bound {
    const pb::Place *place = nullptr;
    int64_t offset = 0;
  };
  /// The RUN and call that wrote a byte.
  struct Writer {
    const pb::Action *action = nullptr;
    uint32_t round = 0;
    int call = -1;
  };
  /// The byte ranges that an in-flight transfer reads and writes.
  struct OpenTransfer {
    std::vector<std::pair<int, Span>> read, written; ///< spans, each with the index of its memory
  };

  // entries.cpp
  void begin();
  void beginBucket(const pb::Call &call, const pb::BucketUse &use, uint32_t number);
  void beginGradient(const pb::Bucket &bucket, const pb::Buffer &buffer);
  void fill(const pb::Exchange &exchange);
  bool isCache(const Operand &need) const;
  void findResident();
  void keepResident();
  void end();
  void endBucket(const pb::Call &call, const pb::BucketUse &use, uint32_t number);
  void checkVersion(const pb::Buffer &buffer, uint32_t call, const pb::Bucket &bucket);
  void checkAgreed(const pb::Exchange &exchange, const Operand &operand);
  void readByHost(const pb::Exchange &exchange);
  bool finds(uint32_t region) const;
  bool writes(uint32_t region) const;

  // play.cpp
  void act(const pb::Block &block);
  void run(const pb::Run &run);
  void runCall(const pb::Run &run, int index);
  void checkPlaces(const Summary &summary);
  void applyTerms(const Summary &summary, const pb::Run &run);
  void applyTerm(const Operand &term, const pb::Run &run);
  void checkTurn(uint32_t sum, const pb::Run &run, const Instance &instance);
  void applyClobbers(const Summary &summary);
  void applyGives(const Summary &summary);
  void setSlots(uint32_t call, const google::protobuf::RepeatedField<uint32_t> &slots);

  // transfers.cpp
  void startTransfer(const pb::Flight &flight);
  void readSources(const pb::Transfer &transfer, const std::vector<Operand> &operands, OpenTransfer &opened);
  void writeTargets(const pb::Transfer &transfer, const std::vector<Operand> &operands, OpenTransfer &opened);
  void copyTags(const Operand &from, const Where &to, const Span &target);
  void beginSums(const Operand &from, const Operand &to, const Instance &instance);
  void waitForTransfer(const pb::Flight &flight);

  // Used by all three files.
  ByteState &bytesOf(const Where &where) { return memories[static_cast<size_t>(where.memory)]; }
  Where where(int region) const;
  Span spanOf(const Operand &operand, const Where &where) const {
    return {where.base + operand.span.begin, where.base + operand.span.end, operand.span.part};
  }
  std::optional<Instance> instanceOf(uint32_t value, int32_t layer);
  std::optional<Instance> instanceOf(const Operand &operand) { return instanceOf(operand.value, operand.layer); }
  bool checkReady(const Operand &operand, uint32_t queue, std::string_view verb);
  bool checkFree(const Where &where, const Span &span, uint32_t queue, std::string_view what);
  Content contentOf(const Operand &operand, const Where &where, const Instance &instance) const;
  std::string explain(const Fault &fault) const;
  std::string describe(const Instance &instance) const;
  std::string describe(const Writer &writer) const;
  std::string regionName(int region) const { return view.plan.regions(region); }
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(position() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  std::string position() const;

  const ProgramView &view;
  const int stageIndex;
  const pb::Stage &stage;
  const int entryIndex;
  const pb::Entry &entry;
  PlanErrors &errors;
  Sums sums;
  std::vector<ByteState> memories;                    ///< by memory
  std::vector<std::vector<Bound>> bounds;             ///< by call and region
  std::vector<const pb::Chunk *> chunkOf;             ///< by call
  std::vector<uint32_t> slotOf;                       ///< the current ring slot, by live range
  std::vector<Writer> writers = {Writer()};           ///< by Content.writer; 0 is before the entry
  std::set<std::tuple<uint32_t, int, uint32_t>> done; ///< role, call, micro-batch
  std::set<std::vector<uint32_t>> knownPlaces;        ///< call, role and slots whose regions are known to be disjoint
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, OpenTransfer> inFlight; ///< by transfer, call, micro-batch
  std::map<uint32_t, int> openOnQueue;
  // The last addition to a sum: its micro-batch, by sum, role and call; its call, by sum, role and micro-batch.
  std::map<std::tuple<uint32_t, uint32_t, int>, uint32_t> lastMicroBatch;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> lastCall; ///< sums of the stage only
  std::vector<Span> filled;                                         ///< host memory that the host fills

  // The current position.
  const pb::Action *action = nullptr;
  uint32_t round = 0, advance = 0;
  int call = -1;
  uint32_t microBatch = 0;
};

/// Formats an action, for example "RUN backward of block.0 to head, micro-batch 2".
std::string actionText(const pb::Plan &plan, const pb::Stage &stage, const pb::Action &action, uint64_t moved);

} // namespace espalier::rt::verify
