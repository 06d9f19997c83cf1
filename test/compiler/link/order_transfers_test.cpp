#include "compiler/link/order_transfers.h"

#include "gmock/gmock.h"

#include <string>

namespace espalier {
namespace {

using planner::Schedule;
using testing::ElementsAre;

std::vector<std::string> names(const std::vector<StageFlight> &flights) {
  const char *kinds[] = {"tok", "out", "in", "din", "dout"};
  std::vector<std::string> result;
  for (const StageFlight &flight : flights)
    result.push_back(kinds[static_cast<int>(flight.kind)] + std::to_string(flight.chunk) + "/" +
                     std::to_string(flight.microBatch));
  return result;
}

// Transfers are sent as soon as their value exists. out/2 and the cotangent of micro-batch 1 are ready at the same
// time; the forward transfer comes first.
TEST(OrderTransfers, BothEndsHaveOneOrder) {
  auto order = orderTransfers(planner::buildSchedule(Schedule::OneFOneB, 2, 3));
  EXPECT_THAT(names(order[0]), ElementsAre("out0/0", "out0/1", "dout0/0", "out0/2", "dout0/1", "dout0/2"));
  EXPECT_THAT(names(order[1]), ElementsAre("in0/0", "in0/1", "din0/0", "in0/2", "din0/1", "din0/2"));
}

TEST(OrderTransfers, OneStageMovesNothing) {
  EXPECT_THAT(orderTransfers(planner::buildSchedule(Schedule::OneFOneB, 1, 4)), ElementsAre(testing::IsEmpty()));
}

// The stages of a V schedule exchange values of both chunks. On the last stage, where the V turns, no transfer is
// needed.
TEST(OrderTransfers, TheTurningStageOfAVNeedsNoTransfer) {
  auto order = orderTransfers(planner::buildSchedule(Schedule::ZeroBubbleV, 2, 1));
  EXPECT_THAT(names(order[0]), ElementsAre("out0/0", "in1/0", "din1/0", "dout0/0"));
  EXPECT_THAT(names(order[1]), ElementsAre("in0/0", "out1/0", "dout1/0", "din0/0"));
}

// The last stage sends its stream to the next chunk of the first stage.
TEST(OrderTransfers, InterleavedChunksContinueOnTheFirstStage) {
  auto order = orderTransfers(planner::buildSchedule(Schedule::Interleaved, 2, 2, 2));
  EXPECT_THAT(names(order[0]), ElementsAre("out0/0", "out0/1", "in1/0", "in1/1", "out1/0", "out1/1", "dout1/0",
                                           "din1/0", "dout1/1", "dout0/0", "din1/1", "dout0/1"));
  EXPECT_THAT(names(order[1]), ElementsAre("in0/0", "in0/1", "out0/0", "out0/1", "in1/0", "in1/1", "din1/0", "dout0/0",
                                           "din1/1", "din0/0", "dout0/1", "din0/1"));
}

} // namespace
} // namespace espalier
