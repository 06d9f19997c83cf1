// Where the arguments and results of phase functions lie in their regions, and which values they hold: the attributes
// `exec.offset`, `exec.value`, `exec.part` and `exec.bucket`.
#pragma once

#include "compiler/pipeline/segment_layout.h"
#include "runtime/plan.pb.h"

#include <map>

namespace espalier {

/// Sizes of the regions that do not belong to a bucket, and the values that pass between programs.
struct RegionSizes {
  std::map<std::pair<std::string, std::string>, uint64_t> savedBytes; ///< by "<segment>.<policy>" and region
  std::map<std::string, uint64_t> inputOffsets; ///< by input name, in one slot of the inputs
  std::vector<rt::pb::Value> values;            ///< streams, cotangents, inputs and saved values, by first use
  uint64_t inputBytes = 0;                      ///< of one slot
  uint64_t oneInputBytes = 0;                   ///< of one input, unpadded
  std::map<std::string, uint64_t> cacheBytes;   ///< by segment, in generation
  uint64_t logitsBytes = 0;                     ///< of the logits on a rank, in generation
  uint64_t streamBytes = 0;                     ///< of the stream value between segments
  uint64_t guardBytes = 0;                      ///< kept free behind each buffer of a checked plan
};

/// Sets the attributes on every argument and result of the module's functions whose role has a region.
RegionSizes layOutRegions(mlir::ModuleOp module, const std::vector<SegmentLayout> &segments);

} // namespace espalier
