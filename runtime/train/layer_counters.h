// Finds the counters of a plan's layers, which the host reads between steps, and exchanges their numbers.
#pragma once

#include "format/plan.pb.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

class Agreement;

/// A counter of a layer.
struct LayerCounter {
  int stage = 0;
  uint32_t call = 0; ///< index in the stage
  std::string layer; ///< "block.3"
  std::string name;  ///< "chosen0"
  pb::Buffer buffer; ///< in the region `cache` of the call
  uint64_t elements; ///< on one rank
  uint32_t partial;  ///< axes whose ranks count different tokens
};

/// Returns the counters whose names begin with one of the prefixes, ordered by layer, then by name.
std::vector<LayerCounter> findCounters(const pb::Plan &plan, std::initializer_list<std::string_view> prefixes);

/// Returns the numbers of all ranks, by rank. No rank has more than `most` numbers. All ranks call it together.
std::vector<std::vector<uint32_t>> exchangeNumbers(Agreement &agreement, const std::vector<uint32_t> &mine,
                                                   size_t most);

} // namespace espalier::rt
