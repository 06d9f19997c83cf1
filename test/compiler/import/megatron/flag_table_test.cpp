// Tests the table of Megatron's flags: it is complete, and every kind of row does what it says.
#include "compiler/import/megatron/flag_table.h"

#include "compiler/import/megatron/import_args.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// 24 layers on 4 devices, 16 samples in a global batch.
const std::string small = "pretrain.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
                          "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 16 ";

ImportedArgs importText(const std::string &text) {
  ArgsOptions options;
  options.cluster = "a100_80g_selene:1x4";
  return importArgs("x.sh", text, options);
}

std::string findingsOf(const std::string &flags) { return importText(small + flags).diagnostics.render(); }

/// Returns how the import reports the flag: "used: ..." or "ignored: ...".
std::string effectOf(const ImportedArgs &args, const std::string &flag) {
  for (const ImportedKey &key : args.flags)
    if (key.key == flag)
      return (key.isUsed ? "used: " : "ignored: ") + key.effect;
  return "";
}

/// Returns the flag with a value of its type.
std::string withValue(const FlagRow &row) { return row.name + (row.type == 's' ? " x" : row.type ? " 7" : ""); }

TEST(FlagTable, HasAllFlagsOfMegatron) {
  std::ifstream file(ESPALIER_SOURCE_DIR "/test/golden/megatron_flags.txt");
  size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#'))
      continue;
    ++count;
    EXPECT_NE(findFlag(currentFlag(line)), nullptr) << line;
  }
  EXPECT_GT(count, 800U);
}

TEST(FlagTable, HasEachFlagOnceAndAReason) {
  std::set<std::string> names;
  for (const FlagRow &row : flagTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(currentFlag(row.name), row.name);
    EXPECT_TRUE(row.use == FlagUse::Written || !row.text.empty()) << row.name;
    EXPECT_TRUE(row.type == 0 || row.type == 'i' || row.type == 'f' || row.type == 's') << row.name;
  }
}

TEST(FlagTable, FlagsWithoutEffectAreIgnoredWithTheReason) {
  for (const FlagRow &row : flagTable()) {
    if (row.use != FlagUse::Ignored)
      continue;
    ImportedArgs args = importText(small + withValue(row));
    EXPECT_EQ(args.diagnostics.render(), "") << row.name;
    EXPECT_EQ(effectOf(args, row.name), "ignored: " + row.text);
    if (row.type)
      EXPECT_THAT(findingsOf(row.name + " --bf16"), HasSubstr("error: " + row.name + " takes a value, got none"));
  }
}

// A flag for a missing feature that would change the training is an error, unless its value turns the feature off.
TEST(FlagTable, FlagsThatChangeTheTrainingAreRefused) {
  for (const FlagRow &row : flagTable()) {
    if (row.use != FlagUse::Refused)
      continue;
    EXPECT_THAT(findingsOf(withValue(row)), HasSubstr("error: " + row.name + " has no counterpart here: " + row.text));
    if (!row.neutral.empty())
      EXPECT_EQ(findingsOf(row.name + " " + row.neutral), "") << row.name;
  }
  EXPECT_EQ(findingsOf("--min-loss-scale 1.00"), "");
  EXPECT_THAT(findingsOf("--window-size '(128,0)'"),
              AllOf(HasSubstr("attention sees all earlier tokens; leave it out\n"), Not(HasSubstr("did you mean"))));
}

// A flag that a part of the import converts is read if the flags that it modifies are given.
TEST(FlagTable, WrittenFlagsAreRead) {
  for (const FlagRow &row : flagTable()) {
    if (row.use != FlagUse::Written || row.name == "--vocab-file") // the file is read by the caller
      continue;
    std::string flags = small + "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
                                "--lr 1e-4 --num-experts 8 --moe-router-enable-expert-bias --multi-latent-attention ";
    if (flags.find(row.name + " ") == std::string::npos)
      flags += withValue(row);
    EXPECT_THAT(effectOf(importText(flags), row.name), HasSubstr("used: ")) << row.name;
  }
}

TEST(FlagTable, SuggestionsAreNear) {
  EXPECT_THAT(findingsOf("--windw-size 3"), HasSubstr("unknown flag --windw-size, did you mean '--window-size'?"));
  for (const char *flag : {"--windows-sized-x 3", "--hidden-sizes-of-all 3", "--trian-itrs 3"})
    EXPECT_THAT(findingsOf(flag), AllOf(HasSubstr("unknown flag"), Not(HasSubstr("did you mean")))) << flag;
}

TEST(FlagTable, OptionsOfTheRunTakeValues) {
  ImportedArgs args = importText(small + "--tensorboard-dir 'my logs' --log-interval 50 --dataloader-type cyclic");
  EXPECT_EQ(args.diagnostics.render(), "");
  EXPECT_THAT(args.yaml, HasSubstr("espalier run RUN.plan --log-every 50 --tensorboard 'my logs' --dataloader-type "
                                   "cyclic\n"));
  args = importText(small + "--tensorboard-dir $LOGS --log-interval $N --train-iters $N --save $DIR");
  EXPECT_EQ(args.diagnostics.render(), "");
  EXPECT_EQ(effectOf(args, "--tensorboard-dir"), "ignored: give it at the run: `espalier run --tensorboard DIR`");
  EXPECT_EQ(effectOf(args, "--save"), "ignored: give it at the run: `espalier run --checkpoint DIR`");
  EXPECT_THAT(findingsOf("--dataloader-type external"),
              HasSubstr("--dataloader-type is single|cyclic here, got external"));
}

TEST(FlagTable, UnknownPathsOfWeightsAreGivenAtTheRun) {
  for (const char *flags : {"--load $W --save $S", "--load ${W}/ckpt --save ${W}/ckpt --no-load-optim --no-load-rng",
                            "--load $W --finetune", "--load $W --skip-train"}) {
    ImportedArgs args = importText(small + flags);
    EXPECT_EQ(args.diagnostics.render(), "") << flags;
    EXPECT_EQ(effectOf(args, "--load"), "ignored: give it at the run: `espalier run --load FOLDER`");
    EXPECT_THAT(args.yaml, AllOf(Not(HasSubstr("load_checkpoint")), Not(HasSubstr("finetune")))) << flags;
  }
  EXPECT_EQ(effectOf(importText(small + "--load $W --save $W"), "--load"),
            "ignored: give it at the run: `espalier run --checkpoint DIR --resume`");
}

TEST(FlagTable, NamesOfOtherVersions) {
  ImportedArgs args = importText("pretrain.py --encoder-num-layers 24 --hidden-size 64 --num-attention-heads 4 "
                                 "--encoder-seq-length 128 --batch-size 2 --model-parallel-size 2 --layernorm-epsilon "
                                 "1e-6 --num-key-value-heads 4");
  EXPECT_EQ(args.diagnostics.render(), "");
  EXPECT_THAT(args.yaml, AllOf(HasSubstr("num_layers: 24"), HasSubstr("seq_length: 128"), HasSubstr("batch_size: 2"),
                               HasSubstr("model_parallel: 2"), HasSubstr("layernorm_epsilon: 1e-06")));
  EXPECT_THAT(effectOf(args, "--layernorm-epsilon"), HasSubstr("used: "));
}

TEST(FlagTable, FlagsWithoutALaunchAreOneError) {
  for (const char *text : {"MODEL_ARGS=\"--num-layers 32 --hidden-size 4096\"\n", "MODEL_ARGS=( # Llama\n)\n",
                           "MODEL_ARGS=(\n    --num-layers 32\n    --swiglu\n)\n"}) {
    std::string findings = importText(text).diagnostics.render();
    EXPECT_EQ(std::ranges::count(findings, '\n'), 1) << findings;
    if (std::string_view(text).find("--") != std::string_view::npos)
      EXPECT_THAT(findings,
                  HasSubstr("error: no command of the script launches a .py file, so that launcher, batch and parallel "
                            "sizes are missing; $MODEL_ARGS holds flags"));
    else
      EXPECT_THAT(findings, HasSubstr("error: no flags are found"));
  }
}

TEST(FlagTable, TheEmbeddingAndTheLossCountAsLayers) {
  std::string yaml = importText("pretrain.py --num-layers 30 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
                                "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split "
                                "--account-for-loss-in-pipeline-split --global-batch-size 8")
                         .yaml;
  EXPECT_THAT(yaml, HasSubstr("stage_layers: [7, 8, 8, 7]"));
  yaml = importText("pretrain.py --num-layers 15 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
                    "--pipeline-model-parallel-size 4 --account-for-loss-in-pipeline-split --global-batch-size 8 "
                    "--num-layers-per-virtual-pipeline-stage 2")
             .yaml;
  EXPECT_THAT(yaml, AllOf(HasSubstr("virtual_stages: 2"), HasSubstr("stage_layers: [2, 2, 2, 2, 2, 2, 2, 1]")));
  EXPECT_THAT(findingsOf("--account-for-loss-in-pipeline-split"),
              HasSubstr("25 layers, with the embedding and the loss that count as layers, are not a multiple of 2"));
}

TEST(FlagTable, FullShardingIsTheDefaultOfFsdp) {
  for (const char *flag : {"--use-megatron-fsdp", "--use-torch-fsdp2"})
    EXPECT_THAT(importText(small + flag).yaml, HasSubstr("parallel_optimizer_comm_recompute: True")) << flag;
  EXPECT_THAT(importText(small + "--use-megatron-fsdp --data-parallel-sharding-strategy optim").yaml,
              HasSubstr("parallel_optimizer_comm_recompute: False"));
}

TEST(FlagTable, PositionsOfOtherKindsAreRefused) {
  for (const char *kind : {"none", "relative", "yarn", "mrope"})
    EXPECT_THAT(findingsOf(std::string("--position-embedding-type ") + kind),
                HasSubstr(std::string("no positions '") + kind + "' here, there are learned_absolute, rope"));
}

} // namespace
} // namespace espalier
