// A stage's list of an entry, played on summaries: one rank stands for all of the stage. Rule C; what begins and ends
// an entry, rule J, is in entries.cpp.
#pragma once

#include "runtime/verify/byte_state.h"
#include "runtime/verify/sums.h"

#include <array>

namespace espalier::rt::verify {

class Play {
public:
  Play(const ProgramView &view, int stage, int entry, PlanErrors &errors);

  void play();

private:
  /// Where a region of the running call begins.
  struct Where {
    int memory = 0;
    int64_t base = 0;
  };
  /// A region that a call binds.
  struct Bound {
    const pb::Place *place = nullptr;
    int64_t offset = 0;
  };
  /// Who wrote something.
  struct Writer {
    const pb::Action *action = nullptr;
    uint32_t round = 0;
    int call = -1;
  };
  struct Flight {
    std::vector<std::pair<int, Span>> read, written; ///< with the memory
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

  // flights.cpp
  void startFlight(const pb::Flight &flight);
  void readSources(const pb::Transfer &transfer, const std::vector<Operand> &operands, Flight &opened);
  void writeTargets(const pb::Transfer &transfer, const std::vector<Operand> &operands, Flight &opened);
  void copyTags(const Operand &from, const Where &to, const Span &target);
  void beginSums(const Operand &from, const Operand &to, const Instance &instance);
  void waitFlight(const pb::Flight &flight);

  // what all of them use
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
  std::vector<uint32_t> slotOf;                       ///< by lifetime, of what runs
  std::vector<Writer> writers = {Writer()};           ///< by Content.writer; 0 is before the entry
  std::set<std::tuple<uint32_t, int, uint32_t>> done; ///< role, call, micro-batch
  std::set<std::vector<uint32_t>> knownPlaces;        ///< call, role and slots whose regions were found apart
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Flight> flights; ///< by transfer, call, micro-batch
  std::map<uint32_t, int> openOnQueue;
  // What was last added to a sum, by the sum, the role, and the call: its micro-batch; or the micro-batch: its call.
  std::map<std::tuple<uint32_t, uint32_t, int>, uint32_t> lastMicroBatch;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> lastCall; ///< of sums of the stage
  std::vector<Span> filled;                                         ///< host memory that the host fills

  // Where the play stands.
  const pb::Action *action = nullptr;
  uint32_t round = 0, advance = 0;
  int call = -1;
  uint32_t microBatch = 0;
};

/// "RUN backward of block.0 to head, micro-batch 2".
std::string actionText(const pb::Plan &plan, const pb::Stage &stage, const pb::Action &action, uint64_t moved);

} // namespace espalier::rt::verify
