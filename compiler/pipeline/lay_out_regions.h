// Sizes of the regions that do not belong to a bucket: exec.region as plain data.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>

namespace espalier {

/// What training reads of samples, in the order of the inputs' region.
inline constexpr const char *trainingInputs[] = {"tokens", "positions", "labels", "loss_weights"};

struct RegionSizes {
  struct Input {
    uint64_t offset = 0; ///< in one slot of the inputs
    uint64_t bytes = 0;  ///< unpadded
  };

  std::map<std::pair<std::string, std::string>, uint64_t> savedBytes; ///< by "<segment>.<policy>" and region
  std::map<std::string, Input> inputs;                                ///< by name; in generation by "<name>.<phase>"
  uint64_t inputBytes = 0;                                            ///< of one slot
  std::map<std::string, uint64_t> cacheBytes;                         ///< by segment, in generation
  uint64_t logitsBytes = 0;                                           ///< of the logits on a rank, in generation
  uint64_t streamBytes = 0;                                           ///< of the stream value between segments
  uint64_t guardBytes = 0; ///< kept free behind each buffer of a checked plan
};

/// What `lay-out-regions` has listed in the module.
RegionSizes readRegions(mlir::ModuleOp module);

} // namespace espalier
