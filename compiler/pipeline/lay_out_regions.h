// Offsets of the arguments and results of phase functions in their regions, as the attribute `exec.offset`.
#pragma once

#include "compiler/pipeline/segment_layout.h"

#include <map>

namespace espalier {

/// Sizes of the regions that do not belong to one parameter.
struct RegionSizes {
  std::map<std::string, uint64_t> savedBytes;   ///< by "<segment>.<policy>"
  std::map<std::string, uint64_t> inputOffsets; ///< by input name, in one slot of INPUTS
  uint64_t inputBytes = 0;                      ///< of one slot
  uint64_t oneInputBytes = 0;                   ///< of one input, unpadded
  uint64_t streamBytes = 0;                     ///< of the stream value between segments
  uint64_t guardBytes = 0;                      ///< kept free behind each buffer of a checked plan
};

/// Sets `exec.offset` on every argument and result of the module's functions whose role has a region with offsets.
RegionSizes layOutRegions(mlir::ModuleOp module, const std::vector<SegmentLayout> &segments);

} // namespace espalier
