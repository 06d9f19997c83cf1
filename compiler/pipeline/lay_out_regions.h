// Sizes of the regions that do not belong to a bucket: exec.region as plain data.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>

namespace espalier {

struct RegionSizes {
  std::map<std::string, uint64_t> savedBytes;   ///< by "<segment>.<policy>"
  std::map<std::string, uint64_t> inputOffsets; ///< by input name, in one slot of the inputs
  uint64_t inputBytes = 0;                      ///< of one slot
  uint64_t oneInputBytes = 0;                   ///< of one input, unpadded
  uint64_t streamBytes = 0;                     ///< of the stream value between segments
  uint64_t guardBytes = 0;                      ///< kept free behind each buffer of a checked plan
};

/// What `lay-out-regions` has listed in the module.
RegionSizes readRegions(mlir::ModuleOp module);

} // namespace espalier
