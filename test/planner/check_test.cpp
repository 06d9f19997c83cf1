// Each constraint on plans is found with the field to change and a way out.
#include "planner/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <variant>

using namespace espalier::planner;
using testing::ElementsAre;

namespace {

const std::vector<Divisibility> dense = {{"heads", 12, Axis::Tp},
                                         {"hidden", 768, Axis::Tp},
                                         {"seq", 64, Axis::Cp},
                                         {"seq", 64, Axis::Tp, 1, /*onlySequenceParallel=*/true}};
const std::vector<Divisibility> experts = {
    {"heads", 12, Axis::Tp},
    {"seq", 64, Axis::Tp, 1, /*onlySequenceParallel=*/true},
    {"expert", 8, Axis::Ep, 1, /*onlySequenceParallel=*/false, /*ofExperts=*/true}};

PlanLimits limits(std::span<const Divisibility> divisibility = dense) {
  return {.cluster = "test", .devices = 32, .layers = 8, .globalBatch = 48, .divisibility = divisibility};
}

/// A pin.
using Field = std::variant<std::optional<int> Pins::*, std::optional<int64_t> Pins::*, std::optional<bool> Pins::*>;

Pins pinned(std::initializer_list<std::pair<Field, int>> fields) {
  Pins pins;
  for (const auto &[field, value] : fields)
    std::visit([&, value = value](auto member) { pins.*member = value; }, field);
  return pins;
}

/// Returns the findings as "field: reason; way out".
std::vector<std::string> found(const Pins &pins, const PlanLimits &limits = ::limits()) {
  std::vector<std::string> texts;
  for (const Finding &finding : check(pins, limits))
    texts.push_back(finding.field + ": " + finding.reason + "; " + finding.wayOut());
  return texts;
}

TEST(Check, FreeFieldsViolateNothing) {
  EXPECT_THAT(found({}), ElementsAre());
  EXPECT_THAT(found(pinned({{&Pins::tp, 4}, {&Pins::pp, 2}, {&Pins::microBatchSize, 3}})), ElementsAre());
}

TEST(Check, AxesMultiplyToTheDevices) {
  EXPECT_THAT(found(pinned({{&Pins::dp, 4}, {&Pins::tp, 4}, {&Pins::pp, 4}, {&Pins::cp, 1}, {&Pins::ep, 1}})),
              ElementsAre("dp: dp 4 · tp 4 · pp 4 · cp 1 needs 64 devices, cluster test has 32; 4 → 2"));
  EXPECT_THAT(found(pinned({{&Pins::pp, 3}})),
              ElementsAre("dp: dp 1 · tp 1 · pp 3 · cp 1 needs a multiple of 3 devices, cluster test "
                          "has 32; choose a cluster of that size; "));
}

TEST(Check, EveryStageNeedsALayer) {
  EXPECT_THAT(found(pinned({{&Pins::pp, 16}})),
              ElementsAre("pp: 16 pipeline stages need as many layers, the model has 8; 16 → 8"));
  EXPECT_THAT(found(pinned({{&Pins::pp, 4}, {&Pins::virtualStages, 2}})), ElementsAre());
  EXPECT_THAT(found(pinned({{&Pins::pp, 4}, {&Pins::virtualStages, 4}})),
              ElementsAre("virtual_stages: 4 stages with 4 chunks each need 14 layers, the model has 8; "));
}

TEST(Check, DimensionsDivide) {
  EXPECT_THAT(found(pinned({{&Pins::tp, 16}})), ElementsAre("tp: heads 12 is not a multiple of tp 16; 16 → 12"));
  EXPECT_THAT(found(pinned({{&Pins::tp, 4}, {&Pins::cp, 4}, {&Pins::sequenceParallel, true}}), limits()),
              ElementsAre());
  std::vector<Divisibility> uneven = dense;
  uneven[2].value = uneven[3].value = 60;
  EXPECT_THAT(found(pinned({{&Pins::tp, 4}, {&Pins::cp, 2}, {&Pins::sequenceParallel, true}}), limits(uneven)),
              ElementsAre("seq_length: seq 60 is not a multiple of cp 2 · tp 4, over which sequence parallelism splits "
                          "it; "));
  EXPECT_THAT(found(pinned({{&Pins::cp, 8}}), limits(uneven)),
              ElementsAre("cp: seq 60 is not a multiple of cp 8; 8 → 6 or 10"));
  EXPECT_THAT(found(pinned({{&Pins::cp, 4}, {&Pins::zigzag, true}}), limits(uneven)),
              ElementsAre("cp: seq 60 is not a multiple of 2 · cp 4; 4 → 3 or 5"));
}

TEST(Check, ExpertsAreSplitByTheirOwnAxis) {
  EXPECT_THAT(found(pinned({{&Pins::ep, 2}})),
              ElementsAre("ep: expert parallelism needs experts, the model is dense; 2 → 1"));
  EXPECT_THAT(found(pinned({{&Pins::cp, 2}}), limits(experts)),
              ElementsAre("cp: experts with a capacity are chosen over whole sequences, which cp splits; with "
                          "moe_config.capacity_factor 0 no token is dropped, and cp may split them; 2 → 1"));
  EXPECT_THAT(found(pinned({{&Pins::tp, 4}, {&Pins::ep, 4}}), limits(experts)), ElementsAre());
  EXPECT_THAT(found(pinned({{&Pins::tp, 4}, {&Pins::ep, 4}, {&Pins::splitsExperts, false}}), limits(experts)),
              ElementsAre("ep: expert 8 is not a multiple of tp 4 · ep 4; "));
  std::vector<Divisibility> dropless = experts;
  dropless.push_back({"seq", 64, Axis::Cp});
  EXPECT_THAT(found(pinned({{&Pins::cp, 4}, {&Pins::ep, 4}}), limits(dropless)), ElementsAre());
  EXPECT_THAT(found(pinned({{&Pins::cp, 4}, {&Pins::ep, 2}, {&Pins::expertsOverContext, true}}), limits(dropless)),
              ElementsAre());
  EXPECT_THAT(found(pinned({{&Pins::cp, 4}, {&Pins::ep, 4}, {&Pins::expertsOverContext, true}}), limits(dropless)),
              ElementsAre("ep: expert 8 is not a multiple of cp 4 · ep 4; "));
  EXPECT_THAT(found(pinned({{&Pins::cp, 16}, {&Pins::expertsOverContext, true}}), limits(dropless)),
              ElementsAre("cp: expert 8 is not a multiple of cp 16; 16 → 8"));
  EXPECT_THAT(found(pinned({{&Pins::expertsOverContext, true}})),
              ElementsAre("experts_over_context: experts_over_context spreads experts, but the model has none; "
                          "True → False"));
  EXPECT_THAT(found(pinned({{&Pins::splitsExperts, false}})),
              ElementsAre("expert_tensor_parallel: expert_tensor_parallel splits experts, but the model has none; "
                          "False → True"));
}

TEST(Check, ABatchIsTheProductOfItsFactors) {
  EXPECT_THAT(found(pinned({{&Pins::dp, 32}, {&Pins::microBatchSize, 1}})),
              ElementsAre("global_batch: global batch 48 is not a multiple of dp 32 · micro-batch size 1 · "
                          "micro-batches 1; 48 → 32 or 64"));
  EXPECT_THAT(found(pinned({{&Pins::dp, 4}, {&Pins::microBatchSize, 2}, {&Pins::microBatches, 4}})),
              ElementsAre("global_batch: global batch 48 is not dp 4 · micro-batch size 2 · micro-batches 4; 48 → 32"));
}

TEST(Check, GroupsOfZeroDivideTheDataRanks) {
  EXPECT_THAT(found(pinned({{&Pins::dp, 4}, {&Pins::zero, 1}, {&Pins::zeroGroup, 2}})), ElementsAre());
  EXPECT_THAT(found(pinned({{&Pins::dp, 4}, {&Pins::zero, 1}, {&Pins::zeroGroup, 3}})),
              ElementsAre("zero_group: ZeRO groups of 3 ranks do not divide dp 4; 3 → 2 or 4"));
  EXPECT_THAT(found(pinned({{&Pins::dp, 4}, {&Pins::zero, 0}, {&Pins::zeroGroup, 2}})),
              ElementsAre("zero_group: ZeRO groups of 2 ranks shard nothing under ZeRO 0; planner.pin.zero: 1; "));
}

// The number of micro-batches follows from the batch, and 3 of them do not fill 2 stages of an interleaved schedule.
TEST(Check, SchedulesAreCheckedWithDerivedMicroBatches) {
  Pins pins = pinned({{&Pins::tp, 1},
                      {&Pins::pp, 2},
                      {&Pins::cp, 1},
                      {&Pins::ep, 1},
                      {&Pins::virtualStages, 2},
                      {&Pins::microBatchSize, 1}});
  pins.schedule = Schedule::Interleaved;
  EXPECT_THAT(found(pins), ElementsAre("schedule: interleaved 1F1B needs micro-batches (3) that divide by the stages "
                                       "(2); "));
  pins.schedule = Schedule::OneFOneB;
  EXPECT_THAT(found(pins), ElementsAre("schedule: virtual stages need the interleaved or a V-shaped schedule; "));
}

TEST(Check, StagesHaveTheLayersOfTheModel) {
  auto listed = [](std::vector<int> layers, std::optional<int> virtualStages = std::nullopt) {
    Pins pins;
    pins.pp = 2;
    pins.virtualStages = virtualStages;
    pins.stageLayers = std::move(layers);
    if (virtualStages)
      pins.schedule = Schedule::Interleaved;
    return found(pins);
  };
  EXPECT_THAT(listed({3, 5}), ElementsAre());
  EXPECT_THAT(listed({0, 3, 5, 0}, 2), ElementsAre());
  EXPECT_THAT(listed({8, 0}), ElementsAre("stage_layers: every stage needs a layer, got [8, 0]; "));
  EXPECT_THAT(listed({3, 4}), ElementsAre("stage_layers: stages have 7 layers together, the model has 8; "));
  EXPECT_THAT(listed({3, 4, 1}), ElementsAre("stage_layers: 3 stages have layers, the pipeline has 2; "));
}

TEST(Check, NearestDivisors) {
  EXPECT_EQ(nearestDivisors(40, 7), "5 or 8");
  EXPECT_EQ(nearestDivisors(40, 8), "5 or 10");
  EXPECT_EQ(nearestDivisors(25, 50), "25");
  EXPECT_EQ(nearestDivisors(25, 1), "5");
}

} // namespace
