// Imports Megatron's ramps of the batch size. Counts of samples become counts of steps under the ramp.
#include "compiler/import/megatron/import_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string small = "pretrain.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
                          "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 16 ";

ImportedArgs importText(const std::string &text) {
  ArgsOptions options;
  options.cluster = "a100_80g_selene:1x4";
  return importArgs("x.sh", text, options);
}

TEST(RampFlags, RampsOfTheBatchSize) {
  EXPECT_THAT(importText(small + "--rampup-batch-size 2 2 100").yaml, HasSubstr("rampup_batch_size: [2, 2, 100]"));
  EXPECT_THAT(importText(small + "--step-batch-size-schedule \"0:768 250B:1536\"").yaml,
              HasSubstr("step_batch_size_schedule: '0:768 250B:1536'"));
}

// The global batch is 16. Both ramps have 3 steps of 8 samples.
TEST(RampFlags, SamplesUnderARampAreSteps) {
  const std::string schedule = "--lr 1e-3 --lr-decay-style WSD --lr-warmup-samples 16 --lr-decay-samples 184 "
                               "--lr-wsd-decay-samples 32 --train-samples 184 ";
  for (const char *ramp : {"--rampup-batch-size 8 8 24", "--step-batch-size-schedule '0:8 49152:16'"}) {
    std::string yaml = importText(small + schedule + ramp).yaml;
    EXPECT_THAT(yaml, HasSubstr("espalier run RUN.plan --steps 13"));
    EXPECT_THAT(yaml, HasSubstr("warmup_steps: 2"));
    EXPECT_THAT(yaml, HasSubstr("total_steps: 13"));
    EXPECT_THAT(yaml, HasSubstr("decay_steps: 2"));
  }
  EXPECT_THAT(importText(small + schedule).yaml, AllOf(HasSubstr("warmup_steps: 1"), HasSubstr("total_steps: 11")));
  // The samples end within the ramp.
  EXPECT_THAT(importText(small + "--rampup-batch-size 8 8 24 --train-samples 17").yaml, HasSubstr("--steps 2"));
}

} // namespace
} // namespace espalier
