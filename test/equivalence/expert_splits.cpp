// Splits of mixtures of experts.
#include "test/equivalence/splits.h"

namespace espalier {

namespace {

constexpr auto selective = planner::Recompute::Selective, full = planner::Recompute::Full;

} // namespace

const std::vector<SplitCase> &expertSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "one"},
      {.name = "accumulate2", .microBatches = 2},
      {.name = "selective", .recompute = selective},
      {.name = "full", .microBatches = 2, .recompute = full},
      {.name = "dp2", .dp = 2},
      {.name = "dp2_zero1", .dp = 2, .zero = 1},
      {.name = "tp2", .tp = 2},
      {.name = "tp2_sp", .tp = 2, .sequenceParallel = true},
      {.name = "pp2", .pp = 2, .microBatches = 4},
      {.name = "pp2_zero_bubble", .pp = 2, .microBatches = 4, .schedule = planner::Schedule::ZeroBubbleH1},
      {.name = "ep2", .ep = 2},
      {.name = "ep2_accumulate2", .ep = 2, .microBatches = 2},
      {.name = "ep4", .ep = 4},
      {.name = "tp2_ep2", .tp = 2, .ep = 2},
      {.name = "tp2_ep2_sp", .tp = 2, .ep = 2, .sequenceParallel = true},
      {.name = "tp2_whole", .tp = 2, .splitsExperts = false},
      {.name = "tp2_ep2_whole", .tp = 2, .ep = 2, .splitsExperts = false},
      {.name = "tp2_ep2_whole_sp_full",
       .tp = 2,
       .ep = 2,
       .splitsExperts = false,
       .sequenceParallel = true,
       .recompute = full},
      {.name = "dp2_tp2_ep2_whole_zero1", .dp = 2, .tp = 2, .ep = 2, .splitsExperts = false, .zero = 1},
      {.name = "dp2_ep2", .dp = 2, .ep = 2},
      {.name = "ep2_zero1", .ep = 2, .zero = 1},
      {.name = "dp2_ep2_zero1", .dp = 2, .ep = 2, .zero = 1},
      {.name = "dp2_zero2_accumulate2", .dp = 2, .microBatches = 2, .zero = 2},
      {.name = "dp2_ep2_zero3_full", .dp = 2, .ep = 2, .microBatches = 2, .zero = 3, .recompute = full},
      {.name = "dp4_ep2_zero1_group2", .dp = 4, .ep = 2, .zero = 1, .zeroGroup = 2},
      {.name = "dp4_ep2_zero3_group2", .dp = 4, .ep = 2, .zero = 3, .zeroGroup = 2},
      {.name = "dp2_tp2_pp2_zero3", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 3},
      {.name = "ep2_selective", .ep = 2, .recompute = selective},
      {.name = "dp2_ep2_full", .dp = 2, .ep = 2, .recompute = full},
      {.name = "tp2_ep2_full_keep", .tp = 2, .ep = 2, .recompute = full, .keepCollectives = true},
      {.name = "pp2_ep2", .pp = 2, .ep = 2, .microBatches = 2},
      {.name = "dp2_tp2_pp2_ep2_zero1", .dp = 2, .tp = 2, .pp = 2, .ep = 2, .microBatches = 2, .zero = 1},
  };
  return cases;
}

const std::vector<SplitCase> &foldedSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "cp2_over", .cp = 2, .expertsOverContext = true},
      {.name = "cp2_over_zigzag_zero1", .cp = 2, .expertsOverContext = true, .zero = 1, .zigzag = true},
      {.name = "cp2_ep2_over_zero1", .cp = 2, .ep = 2, .expertsOverContext = true, .zero = 1},
      {.name = "dp2_cp4_over_zero2",
       .dp = 2,
       .cp = 4,
       .expertsOverContext = true,
       .microBatches = 2,
       .zero = 2,
       .zigzag = true},
      {.name = "pp2_cp2_ep2_over_zero_bubble",
       .pp = 2,
       .cp = 2,
       .ep = 2,
       .expertsOverContext = true,
       .microBatches = 4,
       .schedule = planner::Schedule::ZeroBubbleH1},
      {.name = "tp2_pp2_cp2_whole_over_sp_full",
       .tp = 2,
       .pp = 2,
       .cp = 2,
       .splitsExperts = false,
       .expertsOverContext = true,
       .microBatches = 2,
       .sequenceParallel = true,
       .recompute = full},
      {.name = "tp2_cp2_ep2_whole_over_zero2",
       .tp = 2,
       .cp = 2,
       .ep = 2,
       .splitsExperts = false,
       .expertsOverContext = true,
       .microBatches = 2,
       .zero = 2,
       .zigzag = true},
      {.name = "dp2_tp2_cp2_ep2_over_zero3_sp",
       .dp = 2,
       .tp = 2,
       .cp = 2,
       .ep = 2,
       .expertsOverContext = true,
       .microBatches = 2,
       .zero = 3,
       .sequenceParallel = true,
       .zigzag = true},
  };
  return cases;
}

std::vector<std::string> foldedSets() { return {"moe_config.capacity_factor=0", "moe_config.expert_num=8"}; }

} // namespace espalier
