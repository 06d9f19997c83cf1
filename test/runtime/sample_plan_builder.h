// The two halves of a hand-written plan: programs of each call, and stages that call them.
#pragma once

#include "test/runtime/sample_plan.h"

#include <string>
#include <vector>

namespace espalier::rt {

inline int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// The kernels of toy_kernels.c.
enum Kernel { Embed, EmbedGradient, Block, BlockGradient, ShiftGradient, Loss, AddLoss, LossGradient, Adam };

/// A parameter's place in its call's regions.
struct Part {
  uint32_t parameter;
  int64_t elements, share;
  bool isSplit; ///< over tp
};

class SamplePlanBuilder {
public:
  explicit SamplePlanBuilder(const SampleOptions &options) : o(options) {}
  pb::Plan build();

private:
  int64_t local() const { return o.features / o.tp; }
  int64_t streamBytes() const { return o.samples * local() * 4; }
  int64_t padded(const Part &part) const { return aligned(part.share * (o.zero ? o.dp : 1) * 4); }
  void addSettings();
  uint32_t addParameter(const std::string &name, bool isSplit, std::vector<uint32_t> stages);
  Part part(uint32_t parameter, bool isSplit) const;

  pb::Subprogram *subprogram(const std::string &name);
  pb::Launch *launch(pb::Subprogram *to, Kernel kernel, int64_t extent, int64_t grain);
  void buffer(pb::Launch *to, pb::Region region, int64_t offset, int64_t bytes, bool written);
  void scalar(pb::Launch *to, int64_t constant, int64_t perMicroBatch = 0, int64_t perTp = 0);
  void shape(pb::Launch *to);
  void finish(pb::Subprogram *program, int64_t workspace);
  void collective(pb::Subprogram *to, pb::Collective::Kind kind, std::vector<std::string> axes, pb::BufferRef from,
                  pb::BufferRef dest, int64_t elements, std::vector<uint32_t> stages = {});
  pb::BufferRef ref(pb::Region region, int64_t offset, int64_t bytes, int64_t perDp = 0) const;

  void embedPrograms();
  void blockPrograms();
  void headPrograms();
  void updatePrograms(pb::Call *call, const std::vector<Part> &parts, bool ownsTied);
  void addStage(int index);
  void addCalls(pb::Stage *stage, int index, int64_t &top);
  void addSchedule(pb::Stage *stage, int index);

  const SampleOptions o;
  pb::Plan plan;
  uint32_t embedForward = 0, embedBackward = 0, blockForward = 0, blockBackward = 0, headForward = 0, headBackward = 0,
           tied = 0;
  uint32_t nextId = 1;
};

} // namespace espalier::rt
