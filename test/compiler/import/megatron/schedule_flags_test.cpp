// Imports Megatron's flags of the length of a run and of its learning-rate schedule.
#include "compiler/import/megatron/import_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// 16 samples in a global batch.
ImportedArgs importText(const std::string &flags) {
  ArgsOptions options;
  options.cluster = "a100_80g_selene:1x4";
  return importArgs("x.sh",
                    "pretrain.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
                    "--global-batch-size 16 " +
                        flags,
                    options);
}

TEST(ScheduleFlags, TheScheduleHasTheStepsOfTheRun) {
  for (const char *flags : {"--lr 1e-4 --train-iters 500", "--train-iters 500", "--train-samples 8000",
                            "--lr 1e-4 --lr-decay-style constant --train-iters 500",
                            "--lr 1e-4 --lr-decay-style WSD --lr-wsd-decay-iters 10 --train-samples 8015"}) {
    ImportedArgs args = importText(flags);
    EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
    EXPECT_THAT(args.yaml, HasSubstr("  total_steps: 500  # --train-")) << flags;
  }
  EXPECT_THAT(importText("--lr 1e-4 --train-samples 3").yaml, HasSubstr("  total_steps: 1  #"));
}

TEST(ScheduleFlags, FlagsOfTheDecayGiveTheScheduleAnotherLength) {
  for (const char *flags :
       {"--lr 1e-4 --train-iters 500 --lr-decay-iters 400", "--lr 1e-4 --train-samples 8000 --lr-decay-samples 6400"}) {
    ImportedArgs args = importText(flags);
    EXPECT_THAT(args.yaml, AllOf(HasSubstr("  total_steps: 400  # --lr-decay-"), HasSubstr("--steps 500")));
    EXPECT_THAT(args.diagnostics.render(), HasSubstr("has a schedule of 400 steps and the run has 500: give `espalier "
                                                     "run --steps 500`"));
  }
  EXPECT_EQ(importText("--lr 1e-4 --train-iters 500 --lr-decay-iters 500").diagnostics.render(), "");
}

TEST(ScheduleFlags, AnUnknownOrAbsentNumberOfStepsIsNotWritten) {
  for (const char *flags : {"--lr 1e-4", "--lr 1e-4 --train-iters $STEPS",
                            "--lr 1e-4 --skip-train --load w --train-iters 5", "--lr 1e-4 --train-iters 0"}) {
    ImportedArgs args = importText(flags);
    EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
    EXPECT_THAT(args.yaml, Not(HasSubstr("total_steps"))) << flags;
  }
}

TEST(ScheduleFlags, AWarmUpMayHaveNoSteps) {
  for (const char *flags : {"--lr 1e-4 --lr-warmup-iters 0", "--lr 1e-4 --lr-warmup-samples 0"}) {
    ImportedArgs args = importText(flags);
    EXPECT_FALSE(args.diagnostics.hasErrors()) << args.diagnostics.render();
    EXPECT_THAT(args.yaml, HasSubstr("  warmup_steps: 0")) << flags;
  }
}

} // namespace
} // namespace espalier
