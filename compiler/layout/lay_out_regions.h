// Holds the sizes of the regions outside of buckets: the ops exec.region as plain data.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <string>

namespace espalier {

/// Sizes and offsets, in bytes, of the regions that lay-out-regions assigned.
struct RegionSizes {
  struct Input {
    uint64_t offset = 0; ///< in bytes within one slot of the inputs
    uint64_t bytes = 0;  ///< without padding
  };

  std::map<std::pair<std::string, std::string>, uint64_t> savedBytes; ///< by "<segment>.<policy>" and region
  std::map<std::string, Input> inputs;                                ///< by name; in generation by "<name>.<phase>"
  uint64_t inputBytes = 0;                                            ///< bytes of one slot
  std::map<std::string, uint64_t> cacheBytes; ///< by segment: caches in generation, counters in training
  uint64_t logitsBytes = 0;                   ///< bytes of one rank's logits; only in generation
  uint64_t streamBytes = 0;                   ///< bytes of the stream value between segments
  uint64_t guardBytes = 0;                    ///< free bytes after each buffer of a checked plan
};

/// Reads the sizes that lay-out-regions has listed in the module.
RegionSizes readRegions(mlir::ModuleOp module);

} // namespace espalier
