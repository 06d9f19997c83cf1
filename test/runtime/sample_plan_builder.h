// Builds the hand-written plan: the shared tables (values, buckets, transfers, programs), the stages that bind them to
// allocations, and their instruction streams.
#pragma once

#include "format/mesh.h"
#include "test/runtime/sample_plan.h"

#include <map>
#include <string>
#include <vector>

namespace espalier::rt {

/// The kernels of toy_kernels.c.
enum Kernel { Embed, EmbedGradient, Block, BlockGradient, ShiftGradient, Loss, AddLoss, LossGradient, Adam };

enum Role { Forward, Backward, Evaluate, Norm, Update, SetScalars, RoleCount };
enum Region {
  Parameters,
  Gradients,
  State,
  Saved,
  StreamIn,
  StreamOut,
  CotangentOut,
  CotangentIn,
  Inputs,
  Workspace,
  ScalarSlots,
  Staged,
  HostSettings,
  Results,
  RegionCount
};
enum EntryNumber : uint32_t { TrainStep, EvaluateEntry };

/// LossSum, TokenCount and SquaredNorm: the globally reduced sums.
constexpr uint32_t sumCount = 3;

/// The attributes of a value besides its name, type and elements.
struct ValueTraits {
  uint32_t split = 0, partial = 0;
  bool perMicroBatch = false, resident = false;
  int32_t whole = -1; ///< the value that this value is a shard of
  uint64_t first = 0;
  uint32_t additions = 0;
};

/// A parameter of one kind of call.
struct ToyParameter {
  const char *name;
  int64_t elements; ///< elements on one rank
  uint32_t split;   ///< mesh axes that shard the only dimension
  double stddev;
};

/// A bucket's index in the plan, and the transfers and programs that use it.
struct ToyBucket {
  uint32_t number;
  std::vector<uint32_t> reductions; ///< indices of transfers in order, on one queue
  int32_t gather = -1;
  std::vector<uint32_t> parameters; ///< values of the stored parameters
  std::vector<uint32_t> gradients;  ///< values of their gradients
  uint32_t share;                   ///< value of the own shard of `stored`
};

/// The buckets of a kind of call, and their size in bytes in each region.
struct Layout {
  std::vector<ToyBucket> buckets;
  uint64_t parameterBytes = 0, gradientBytes = 0, stateBytes = 0;
  uint32_t norm = 0, update = 0; ///< index of the subprogram + 1
};

/// One RUN of a stage, forward or backward.
struct ToyRun {
  bool isBackward;
  int64_t microBatch;
};
/// A transfer to or from another stage, and the RUN after which it starts. -1: before all RUNs.
struct ToyStart {
  uint32_t transfer;
  int64_t microBatch;
  int behind;
};

/// The instruction stream of a stage, and the number of ring slots of each rotating live range.
struct StageLists {
  std::vector<ToyRun> runs;
  std::vector<ToyStart> starts; ///< in the global order of transfers
  std::vector<std::pair<std::string, uint32_t>> slots;
};

class ToyList;

class SamplePlanBuilder {
public:
  explicit SamplePlanBuilder(const SampleOptions &options);
  pb::Plan build();

private:
  int64_t local() const { return o.features / o.tp; }
  uint64_t streamBytes() const { return o.samples * local() * 4; }
  uint64_t inputBytes() const { return o.samples * o.features * 4; }
  /// Returns the offset of the labels, after the tokens.
  uint64_t alignedInput() const { return (inputBytes() + 63) / 64 * 64; }

  // sample_plan.cpp: settings and all indexed tables
  void addSettings();
  void addKernels();
  void addScalarValues();
  uint32_t value(const std::string &name, pb::DataType type, uint64_t elements, const ValueTraits &traits = {});
  uint32_t queue(const std::string &name);
  uint32_t group(uint32_t axes, const std::vector<uint32_t> &stages = {});
  pb::Buffer at(Region region, uint64_t offset, uint64_t bytes, uint32_t value, int layer = 0) const;
  pb::Transfer *transfer(const std::string &name, pb::Transfer::Kind kind, const std::string &queueName);
  uint32_t collective(const std::string &name, pb::Transfer::Kind kind, const std::string &queueName,
                      uint32_t groupNumber, const pb::Buffer &from, const pb::Buffer &to);
  void addStreams();
  void addEntries();

  // sample_plan_buckets.cpp
  void addBuckets(Layout &layout, const std::string &kind, const std::vector<ToyParameter> &parameters,
                  const std::vector<uint32_t> &holders);
  void addBucket(Layout &layout, pb::Bucket bucket, const std::vector<ToyParameter> &parameters);
  void addReductions(ToyBucket &bucket, const pb::Bucket &from);
  void updatePrograms(Layout &layout, const std::string &kind);

  // sample_plan_programs.cpp
  pb::Subprogram *subprogram(const std::string &name);
  void addUses();
  pb::Launch *launch(pb::Subprogram *to, Kernel kernel, int64_t extent, int64_t grain);
  void scalar(pb::Launch *to, int64_t constant, int64_t perTp = 0);
  void isFirst(pb::Launch *to, const ToyBucket &bucket);
  void shape(pb::Launch *to);
  pb::Buffer slot(uint32_t number) const;
  pb::Buffer agreed(uint32_t number) const;
  pb::Buffer parameter(const ToyBucket &bucket, size_t index) const;
  pb::Buffer gradient(const ToyBucket &bucket, size_t index) const;
  void embedPrograms();
  void blockPrograms();
  void headPrograms();
  void stepProgram();

  // sample_plan_stages.cpp
  void addStage(int index);
  uint32_t lifetime(pb::Stage *stage, const std::string &name, uint32_t slots, bool rotates = true);
  uint32_t place(pb::Stage *stage, uint32_t lifetime, const std::string &memoryClass, uint64_t bytes);
  uint32_t hostPlace(pb::Stage *stage, uint32_t lifetime, uint64_t bytes);
  void addCalls(pb::Stage *stage, int index);
  void bindParameters(pb::Stage *stage, pb::Call *call, const Layout &layout);
  void bindStreams(pb::Stage *stage, int index);
  void addExchanges(pb::Stage *stage, int index);

  // sample_plan_lists.cpp
  StageLists listsOf(int index) const;
  void writeLists(pb::Stage *stage, int index, const StageLists &lists) const;
  void writeBackward(const pb::Stage &stage, ToyList &list, int64_t m) const;
  void writeTail(const pb::Stage &stage, ToyList &list) const;
  void writeEvaluation(pb::Stage *stage, const std::vector<uint32_t> &inputs, bool receives, bool sends) const;

  const SampleOptions o;
  const Mesh mesh;
  pb::Plan plan;
  Layout table, block;
  uint32_t embedForward = 0, embedBackward = 0, blockForward = 0, blockBackward = 0, headForward = 0, headBackward = 0,
           step = 0;                                                                            ///< subprogram + 1
  uint32_t tokens = 0, labels = 0, stream = 0, cotangent = 0, saved = 0, loss = 0, lossSum = 0; ///< values
  uint32_t scalars = 0, firstSlot = 0, firstAgreed = 0;
  uint32_t copyTokens = 0, copyLabels = 0, setScalars = 0, metrics = 0, out = 0, in = 0, din = 0,
           dout = 0; ///< transfers
  int32_t agree = -1;
};

} // namespace espalier::rt
