// A launch script is printed with the flags of a plan. All other words stay as they are.
#include "compiler/import/megatron/edit_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace espalier;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

const std::string script = R"(#!/bin/bash
TP=8
ARGS=(
    --num-layers 24 # blocks
    --tensor-model-parallel-size ${TP}
    --micro-batch-size=2
    --sequence-parallel
)
MORE="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]} $MORE --pipeline-model-parallel-size $((8 / TP)) --fp16
)";

} // namespace

TEST(EditScript, ValuesChangeWhereTheyStand) {
  EditedScript edited = editScript("x.sh", script, {},
                                   "--tensor-model-parallel-size 4\n--pipeline-model-parallel-size 2\n"
                                   "--micro-batch-size 1\n--sequence-parallel\n--recompute-granularity selective\n");
  EXPECT_THAT(edited.unplaced, IsEmpty());
  EXPECT_THAT(edited.text, HasSubstr("TP=4\n"));
  EXPECT_THAT(edited.text, HasSubstr("    --num-layers 24 # blocks\n    --tensor-model-parallel-size ${TP}\n"
                                     "    --micro-batch-size=1\n    --sequence-parallel\n"));
  EXPECT_THAT(edited.text, HasSubstr("MORE=\"--recompute-granularity selective  \"\n"));
  EXPECT_THAT(edited.text, HasSubstr("--fp16\n"));
}

TEST(EditScript, FlagsAreInsertedAndRemoved) {
  EditedScript edited = editScript("x.sh", script, {},
                                   "--tensor-model-parallel-size 8\n--pipeline-model-parallel-size 1\n"
                                   "--micro-batch-size 2\n--use-distributed-optimizer\n--num-experts 4\n");
  EXPECT_THAT(edited.unplaced, IsEmpty());
  EXPECT_THAT(edited.text, HasSubstr("--use-distributed-optimizer --"));
  EXPECT_THAT(edited.text, testing::Not(HasSubstr("--sequence-parallel")));
  EXPECT_THAT(edited.text, testing::Not(HasSubstr("--recompute")));
  EXPECT_THAT(edited.text, testing::Not(HasSubstr("--num-experts"))); // not a flag of the plan
}

TEST(EditScript, SameFlagsChangeNothing) {
  std::string same = "--tensor-model-parallel-size 8\n--pipeline-model-parallel-size 1\n--micro-batch-size 2\n"
                     "--sequence-parallel\n--recompute-granularity full\n--recompute-method uniform\n"
                     "--recompute-num-layers 1\n";
  EXPECT_EQ(editScript("x.sh", script, {}, same).text, script);
}

// A flag in a file that is not given cannot be changed.
TEST(EditScript, UnplacedFlagsAreListed) {
  EditedScript edited = editScript("x.sh", "torchrun pretrain_gpt.py --fp16\n", {}, "--tensor-model-parallel-size 2\n");
  EXPECT_THAT(edited.unplaced, ElementsAre("--tensor-model-parallel-size 2"));
}

// A layout needs quotes in a command, and none in a quoted variable.
TEST(EditScript, LayoutsAreQuotedWhereTheyMust) {
  std::string layout = "--pipeline-model-parallel-size 2\n--pipeline-model-parallel-layout \"Et*3|t*4L\"\n";
  EditedScript quoted = editScript("x.sh", "torchrun pretrain_gpt.py --pipeline-model-parallel-size 2\n", {}, layout);
  EXPECT_THAT(quoted.text, HasSubstr("--pipeline-model-parallel-layout \"Et*3|t*4L\" --pipeline"));
  EditedScript variable =
      editScript("x.sh", "A=\"--pipeline-model-parallel-size 2\"\ntorchrun pretrain_gpt.py $A\n", {}, layout);
  EXPECT_THAT(variable.text, HasSubstr("A=\"--pipeline-model-parallel-layout Et*3|t*4L --pipeline"));
  EXPECT_THAT(quoted.unplaced, IsEmpty());
  EXPECT_THAT(variable.unplaced, IsEmpty());
}
