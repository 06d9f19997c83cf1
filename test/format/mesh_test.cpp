// Tests rank coordinates on a mesh whose axes all have different sizes.
#include "format/mesh.h"

#include "runtime/status.h"

#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using testing::ElementsAre;

pb::Mesh sizes(uint32_t pp, uint32_t dp, uint32_t tp) {
  pb::Mesh mesh;
  mesh.set_pp(pp);
  mesh.set_dp(dp);
  mesh.set_cp(1);
  mesh.set_ep(1);
  mesh.set_tp(tp);
  mesh.set_ranks_per_host(8);
  return mesh;
}

// rank = (pp * 3 + dp) * 4 + tp; rank 17 is pp 1, dp 1, tp 1.
TEST(Mesh, CountsRanksFirstAxisSlowest) {
  Mesh mesh(sizes(2, 3, 4));
  EXPECT_EQ(mesh.ranks(), 24);
  EXPECT_EQ(mesh.index(17, PP), 1);
  EXPECT_EQ(mesh.index(23, DP), 2);
  EXPECT_EQ(mesh.index(23, DP | TP), 11);
  EXPECT_EQ(mesh.index(23, CP | EP), 0);
  EXPECT_EQ(mesh.count(PP | TP), 8);
  EXPECT_EQ(mesh.divided(PP | CP | TP), uint32_t(PP | TP));
  EXPECT_EQ(mesh.peer(17, 0), 5);
  EXPECT_EQ(mesh.host(17), 2);
}

TEST(Mesh, MembersDifferInTheirAxesOnly) {
  Mesh mesh(sizes(3, 2, 2));
  EXPECT_THAT(mesh.members(5, TP), ElementsAre(4, 5));
  EXPECT_THAT(mesh.members(5, PP | TP), ElementsAre(0, 1, 4, 5, 8, 9));
  pb::Group ends;
  ends.set_axes(PP);
  ends.add_stages(0);
  ends.add_stages(2);
  EXPECT_THAT(mesh.members(1, ends), ElementsAre(1, 9));
}

TEST(Mesh, SelectsTheShardOfARank) {
  Mesh mesh(sizes(2, 3, 4));
  pb::Buffer buffer;
  buffer.set_offset(100);
  buffer.set_bytes(8);
  EXPECT_EQ(offsetOf(mesh, 23, buffer), 100u);
  buffer.set_part(DP | TP);
  EXPECT_EQ(offsetOf(mesh, 23, buffer), 188u);
  pb::Affine terms;
  terms.set_pp(1000);
  terms.set_tp(-1);
  EXPECT_EQ(mesh.affine(23, terms), 997);
}

// rank = ((pp * 2 + dp_replicate) * 2 + dp) * 2 + tp. Hybrid sharding does not move ranks: rank 13 has the same
// coordinates on pp and tp, and the same place among all data-parallel ranks, as without.
TEST(Mesh, SplitsDataParallelRanksForHybridSharding) {
  pb::Mesh message = sizes(2, 4, 2);
  Mesh whole(message);
  message.set_zero_group(2);
  Mesh mesh(message);
  EXPECT_EQ(mesh.ranks(), 16);
  EXPECT_EQ(mesh.index(13, DP_REPLICATE), 1);
  EXPECT_EQ(mesh.index(13, DP), 0);
  EXPECT_EQ(mesh.index(13, TP), 1);
  EXPECT_EQ(mesh.stage(13), 1);
  EXPECT_EQ(mesh.peer(13, 0), 5);
  EXPECT_THAT(mesh.members(13, DP), ElementsAre(13, 15));
  EXPECT_THAT(mesh.members(13, DP_REPLICATE), ElementsAre(9, 13));
  EXPECT_EQ(mesh.members(13, DP_REPLICATE | DP), whole.members(13, DP));
  EXPECT_EQ(mesh.index(13, sampleAxes), whole.index(13, DP));
  EXPECT_EQ(whole.count(DP_REPLICATE), 1);
  pb::Affine samples;
  samples.set_dp(10);
  EXPECT_EQ(mesh.affine(13, samples), 20);
  EXPECT_EQ(whole.affine(13, samples), 20);
  message.set_zero_group(3);
  EXPECT_THROW(Mesh{message}, PlanError);
}

TEST(Mesh, RejectsInvalidSizes) {
  EXPECT_THROW(Mesh(sizes(2, 0, 1)), PlanError);
  EXPECT_THROW(Mesh(sizes(1 << 10, 1 << 10, 2)), PlanError);
  EXPECT_THROW(Mesh(sizes(UINT32_MAX, UINT32_MAX, UINT32_MAX)), PlanError);
}

} // namespace
} // namespace espalier::rt
