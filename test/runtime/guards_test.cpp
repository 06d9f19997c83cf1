// A hand-built arena: bytes that no buffer owns are guarded, and owned bytes are not.
#include "runtime/guards.h"

#include "format/mesh.h"
#include "runtime/comm/local.h"
#include "runtime/device/cpu/backend.h"

#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

constexpr uint64_t parametersAt = 0, workspaceAt = 128, scalarsAt = 320, arenaBytes = 448;

enum { Parameters, Workspace, ScalarSlots };

void place(pb::Stage *stage, uint64_t offset, uint64_t bytes) {
  pb::Place *place = stage->add_places();
  place->add_offsets(offset);
  place->set_bytes(bytes);
  pb::Binding *binding = stage->mutable_calls(0)->add_bindings();
  binding->set_region(stage->places_size() - 1);
  binding->set_place(stage->places_size() - 1);
}

/// One call: 40 bytes of parameters, a workspace with a 64-byte buffer that is live for instructions 1 and 2, and
/// scalars, which a transfer writes.
pb::Plan guardedPlan() {
  pb::Plan plan;
  plan.set_target("cpu");
  plan.set_guard_bytes(64);
  for (const char *region : {"parameters", "workspace", "scalars"})
    plan.add_regions(region);
  pb::Stage *stage = plan.add_stages();
  stage->add_arena_bytes(arenaBytes);
  stage->add_arena_bytes(0);
  stage->add_lifetimes()->set_slots(1);
  pb::Call *call = stage->add_calls();
  call->set_name("block.2");
  call->add_programs(1);
  place(stage, parametersAt, 128);
  place(stage, workspaceAt, 128);
  place(stage, scalarsAt, 64);
  pb::Buffer *set = plan.add_transfers()->add_to();
  set->set_region(ScalarSlots);
  set->set_bytes(64);
  stage->add_entries()->add_blocks()->add_actions()->mutable_start()->add_flights();
  pb::Subprogram *subprogram = plan.add_subprograms();
  for (int i = 0; i < 4; ++i) {
    pb::Buffer *buffer = subprogram->add_instructions()->mutable_launch()->add_buffers();
    buffer->set_region(Parameters);
    buffer->set_bytes(40);
  }
  pb::Guard *guard = subprogram->add_guards();
  guard->set_offset(64);
  guard->set_first(1);
  guard->set_last(2);
  return plan;
}

pb::Mesh oneRank() {
  pb::Mesh mesh;
  mesh.set_pp(1);
  mesh.set_dp(1);
  mesh.set_cp(1);
  mesh.set_ep(1);
  mesh.set_tp(1);
  return mesh;
}

class GuardsTest : public testing::Test {
protected:
  /// Returns the error if instruction `instruction` writes byte `at` of the arena; empty if it may.
  std::string write(int instruction, uint64_t at) {
    const Place bases[] = {{parametersAt}, {workspaceAt}, {scalarsAt}};
    guards.open(0, instruction, bases);
    device->fill(at, 1, 1);
    try {
      guards.check(0, instruction, bases);
    } catch (const std::runtime_error &error) {
      return error.what();
    }
    return "";
  }

  pb::Plan plan = guardedPlan();
  Mesh mesh{oneRank()};
  LocalWorld world{1};
  std::unique_ptr<Communicator> communicator = world.communicator(0);
  ThreadPool pool{1, 0};
  CpuBackend backend{plan, 1};
  std::unique_ptr<Device> device = backend.open(plan.stages(0), {*communicator, pool, 0});
  Guards guards{plan, mesh, 0, *device};
};

TEST_F(GuardsTest, BuffersAreNotGuarded) {
  for (uint64_t at : {parametersAt, parametersAt + 39, workspaceAt, workspaceAt + 63, scalarsAt, scalarsAt + 63})
    EXPECT_EQ(write(1, at), "") << at;
}

TEST_F(GuardsTest, NameTheBufferBeforeTheDamage) {
  EXPECT_THAT(write(0, parametersAt + 40), HasSubstr("byte 40 of the arena, 0 bytes behind parameters of block.2"));
}

TEST_F(GuardsTest, CoverTheWorkspaceAndTheEnd) {
  EXPECT_THAT(write(0, workspaceAt + 128 + 7), HasSubstr("7 bytes behind the workspace"));
}

TEST_F(GuardsTest, CoverTheEndOfTheArena) {
  EXPECT_THAT(write(0, arenaBytes - 1), HasSubstr("behind scalars of block.2"));
}

// Other buffers may reuse the bytes of a dead workspace buffer.
TEST_F(GuardsTest, ExistWhileTheirBufferIsLive) {
  EXPECT_EQ(write(0, workspaceAt + 64), "");
  EXPECT_EQ(write(1, workspaceAt), "");
  EXPECT_THAT(write(2, workspaceAt + 64), HasSubstr("0 bytes behind a buffer of the workspace"));
  EXPECT_EQ(write(3, workspaceAt + 65), "");
}

} // namespace
} // namespace espalier::rt
