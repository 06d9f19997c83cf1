// Tests the elements that a rank holds, owns and saves: blocks of padded tensors, which ZeRO cuts further.
#include "runtime/parameter_block.h"

#include "test/runtime/sample_plan.h"

#include <gmock/gmock.h>
#include <map>

namespace espalier::rt {
namespace {

pb::Mesh meshOf(uint32_t pp, uint32_t dp, uint32_t tp) {
  pb::Mesh mesh;
  mesh.set_pp(pp);
  mesh.set_dp(dp);
  mesh.set_cp(1);
  mesh.set_ep(1);
  mesh.set_tp(tp);
  return mesh;
}

/// [5, 3] padded to [6, 4], rows over tp 3, columns over dp 2. Rank (dp 1, tp 2) holds rows 4-5 and columns 2-3. Only
/// (4, 2) is not padding.
TEST(ParameterBlock, SkipsPadding) {
  Mesh mesh(meshOf(1, 2, 3));
  pb::Parameter parameter;
  for (int size : {5, 3})
    parameter.add_shape(size);
  for (int size : {6, 4})
    parameter.add_padded_shape(size);
  parameter.add_split(TP);
  parameter.add_split(DP);
  std::vector<int> owners(15, 0);
  for (int rank = 0; rank < 6; ++rank) {
    ParameterBlock block(parameter, mesh, rank);
    EXPECT_EQ(block.elements(), 4);
    block.visitRuns([&](int64_t local, int64_t global, int64_t count) {
      EXPECT_LE(local + count, 4);
      for (int64_t i = 0; i < count; ++i)
        ++owners[global + i];
    });
  }
  EXPECT_EQ(owners, std::vector<int>(15, 1));
  std::vector<int64_t> runs;
  ParameterBlock(parameter, mesh, 5).visitRuns([&](int64_t local, int64_t global, int64_t count) {
    runs.insert(runs.end(), {local, global, count});
  });
  EXPECT_EQ(runs, (std::vector<int64_t>{0, 14, 1}));
}

/// Experts spread over tp and then over ep: tp is the outer axis, although it is last in the mesh.
TEST(ParameterBlock, AxesFollowTheOrderOfThePlan) {
  pb::Mesh axes = meshOf(1, 1, 2);
  axes.set_ep(3);
  Mesh mesh(axes);
  pb::Parameter parameter;
  parameter.add_shape(6);
  parameter.add_padded_shape(6);
  parameter.add_split(EP | TP);
  auto held = [&] {
    std::vector<int64_t> experts; // indexed by rank: ep, then tp
    for (int rank = 0; rank < 6; ++rank)
      ParameterBlock(parameter, mesh, rank).visitRuns([&](int64_t, int64_t global, int64_t) {
        experts.push_back(global);
      });
    return experts;
  };
  EXPECT_EQ(held(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  parameter.add_slow(TP);
  EXPECT_EQ(held(), (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
}

/// The example of runtime/README.md, section 4: dp 2 shards w1 [16, 40] and w2 [40, 16] in one bucket, and g [16] in
/// another.
pb::Plan sharedPlan() {
  pb::Plan plan;
  *plan.mutable_mesh() = meshOf(1, 2, 1);
  auto bucket = [&](const char *name, uint64_t elements) {
    pb::Bucket *made = plan.add_buckets();
    made->set_name(name);
    made->set_elements(elements);
    made->set_partial(DP);
    made->set_share(DP);
    return made;
  };
  auto parameter = [](pb::Bucket *to, const char *name, std::vector<uint64_t> shape, uint64_t first) {
    pb::Parameter *made = to->add_parameters();
    made->set_name(name);
    for (uint64_t size : shape) {
      made->add_shape(size);
      made->add_padded_shape(size);
    }
    made->set_first(first);
  };
  pb::Bucket *decayed = bucket("block.decayed", 1280);
  parameter(decayed, "w1", {16, 40}, 0);
  parameter(decayed, "w2", {40, 16}, 640);
  parameter(bucket("block.plain", 256), "g", {16}, 0);
  pb::Call *call = plan.add_stages()->add_calls();
  call->set_name("block.0");
  call->set_layer(1);
  for (uint32_t number : {0u, 1u}) {
    pb::BucketUse *use = call->add_buckets();
    use->set_bucket(number);
    use->set_owner(1);
    use->set_updates(true);
  }
  return plan;
}

TEST(PlacedParameters, ShardsMayContainAWholeParameterOrNone) {
  pb::Plan plan = sharedPlan();
  Mesh mesh(plan.mesh());
  std::vector<PlacedParameter> first = placedParameters(plan, mesh, 0), second = placedParameters(plan, mesh, 1);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[1].name, "block.0.w2");
  EXPECT_EQ(first[0].own.range, (ElementRange{0, 640}));
  EXPECT_TRUE(first[1].own.range.isEmpty());
  EXPECT_EQ(first[2].own.range, (ElementRange{0, 16}));
  EXPECT_TRUE(second[0].own.range.isEmpty());
  EXPECT_EQ(second[1].own.range, (ElementRange{0, 640}));
  EXPECT_EQ(second[1].own.at, 0);
  EXPECT_TRUE(second[2].own.range.isEmpty()); // rank 1 holds only padding
  for (const PlacedParameter &placed : second) {
    EXPECT_FALSE(placed.isSpokenFor);
    EXPECT_TRUE(placed.isOwnSpokenFor);
  }
}

/// A shard boundary inside a parameter: rank 1 owns elements 640 to 1279 of the bucket.
TEST(PlacedParameters, ShardsCutThroughParameters) {
  pb::Plan plan = sharedPlan();
  plan.mutable_buckets(0)->mutable_parameters(1)->set_first(512);
  Mesh mesh(plan.mesh());
  HeldElements first = placedParameters(plan, mesh, 0)[1].own, second = placedParameters(plan, mesh, 1)[1].own;
  EXPECT_EQ(first.range, (ElementRange{0, 128}));
  EXPECT_EQ(first.at, 512);
  EXPECT_EQ(second.range, (ElementRange{128, 640}));
  EXPECT_EQ(second.at, 0);
  PlacedParameter placed = placedParameters(plan, mesh, 1)[1];
  EXPECT_EQ(placed.heldStored().range, (ElementRange{0, 640}));
  EXPECT_EQ(placed.heldStored().at, 512);
  EXPECT_EQ(placed.heldGradient().at, 512);
  plan.mutable_buckets(0)->mutable_whole_gradient();
  EXPECT_EQ(placed.heldGradient().range, second.range);
  EXPECT_EQ(placed.heldStored().range, (ElementRange{0, 640}));
  plan.mutable_buckets(0)->mutable_whole_stored();
  EXPECT_EQ(placed.heldStored().range, second.range);
  EXPECT_EQ(placed.heldStored().at, 0);
}

/// Under every split, exactly one rank saves each element of each parameter and its state. A tied table counts once.
TEST(PlacedParameters, OneRankSavesEveryElement) {
  for (bool zero : {false, true}) {
    SampleOptions options{.dp = 2, .tp = 2, .pp = 2, .layers = 3, .features = 300, .zero = zero};
    pb::Plan plan = samplePlan(options);
    Mesh mesh(plan.mesh());
    std::map<std::string, std::vector<int>> spoken, owned;
    for (int rank = 0; rank < mesh.ranks(); ++rank)
      for (const PlacedParameter &placed : placedParameters(plan, mesh, rank))
        placed.block.visitRuns([&](int64_t local, int64_t global, int64_t count) {
          spoken[placed.name].resize(placed.elements());
          owned[placed.name].resize(placed.elements());
          for (int64_t i = 0; i < count; ++i) {
            spoken[placed.name][global + i] += placed.isSpokenFor;
            bool isOwn = placed.own.range.begin <= local + i && local + i < placed.own.range.end;
            owned[placed.name][global + i] += placed.isOwnSpokenFor && isOwn;
          }
        });
    std::vector<NamedParameter> all = parametersOf(plan);
    EXPECT_EQ(all.size(), 7u);
    EXPECT_EQ(spoken.size(), all.size());
    for (const NamedParameter &named : all) {
      EXPECT_THAT(spoken[named.name], testing::Each(1)) << named.name;
      EXPECT_THAT(owned[named.name], testing::Each(1)) << named.name;
    }
  }
}

} // namespace
} // namespace espalier::rt
