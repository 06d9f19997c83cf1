// `explain` shows location, action and effect of each key. The README lists all keys.
#include "compiler/import/run/explain.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

ImportedRun run(const std::string &config, std::vector<std::string> sets = {}) {
  ImportOptions options;
  options.sets = std::move(sets);
  return importRun(ESPALIER_SOURCE_DIR "/configs/" + config + ".yaml", options);
}

TEST(Explain, OneKey) {
  EXPECT_THAT(explainRun(run("gpt2_13b"), "parallel_config.model_parallel"),
              MatchesRegex("parallel_config.model_parallel: 8\n  from    .*configs/gpt2_13b.yaml:[0-9]+\n"
                           "  action  used\n  effect  tensor-parallel ranks, the tp axis\n"));
}

TEST(Explain, LastPartOfAKeyIsEnough) {
  EXPECT_THAT(explainRun(run("gpt2_13b"), "model_parallel"), HasSubstr("parallel_config.model_parallel: 8"));
}

TEST(Explain, SectionsAndListItems) {
  ImportedRun r = run("gpt2_13b");
  EXPECT_THAT(explainRun(r, "lr_schedule"), AllOf(HasSubstr("lr_schedule.lr_end: 1.e-6"), Not(HasSubstr("optimizer"))));
  EXPECT_THAT(explainRun(r, "callbacks[1].prefix"), HasSubstr("gpt2-13b"));
  EXPECT_THAT(explainRun(r, "callbacks[].prefix"), HasSubstr("gpt2-13b"));
}

TEST(Explain, SetsAreMarked) {
  EXPECT_THAT(explainRun(run("tiny_gpt", {"seed=7"}), "seed"), HasSubstr("seed: 7\n  from    --set, replaces 42 ("));
}

// --set merges a map as a file is merged over its base_config.
TEST(Sets, AMapIsMergedOverTheSection) {
  ImportedRun r = run("tiny_gpt", {"parallel_config={data_parallel: 4, model_parallel: 1}"});
  EXPECT_EQ(r.diagnostics.render(), "");
  EXPECT_EQ(r.config.pins.dp, 4);
  EXPECT_EQ(r.config.pins.microBatches, run("tiny_gpt").config.pins.microBatches) << "a key that is not named stays";
  EXPECT_THAT(explainRun(r, "parallel_config.data_parallel"),
              MatchesRegex(".*data_parallel: 4\n  from    --set, replaces 2 \\(.*tiny_gpt.yaml:[0-9]+\\)\n.*"));
  EXPECT_THAT(nlohmann::json::parse(explainRunJson(r, "data_parallel"))["keys"][0]["replaces"].get<std::string>(),
              HasSubstr("tiny_gpt.yaml:"));
  r = run("tiny_gpt", {"model={model_config: {num_layers: 6}}"});
  EXPECT_EQ(r.diagnostics.render(), "");
  EXPECT_EQ(r.config.model.layerCount(), 6);
  EXPECT_EQ(r.config.model.dims.at("hidden"), 64);
}

TEST(Sets, NullRemovesASectionAndSaysWhatWasInIt) {
  ImportedRun r = run("tiny_gpt", {"lr_schedule=null"});
  EXPECT_TRUE(r.ok());
  EXPECT_THAT(r.diagnostics.render(), AllOf(HasSubstr("--set: warning: lr_schedule=null removes {type: "),
                                            testing::ContainsRegex("tiny_gpt.yaml:[0-9]+")));
  r = run("tiny_gpt", {"lr_schedule=null", "lr_schedule={type: cosine, learning_rate: 0.5}"});
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.config.schedule.peak(), 0.5);
  EXPECT_EQ(run("tiny_gpt", {"seed=null"}).config.seed, 0u);
}

TEST(Sets, AFaultOfAValueHasItsReason) {
  EXPECT_THAT(run("tiny_gpt", {"parallel_config={a: 1"}).diagnostics.render(),
              HasSubstr("--set: error: the value of 'parallel_config' is not valid YAML: {a: 1: not valid YAML: "));
  EXPECT_THAT(run("tiny_gpt", {"parallel_config=3"}).diagnostics.render(),
              AllOf(HasSubstr("--set: warning: parallel_config=3 replaces {"),
                    HasSubstr("--set: error: parallel_config must be a map, got 3")));
  EXPECT_THAT(run("tiny_gpt", {"base_config=none.yaml"}).diagnostics.render(),
              HasSubstr("--set: error: base_config has no file "));
}

TEST(Explain, AbsentAndUnknownKeys) {
  ImportedRun r = run("tiny_gpt");
  EXPECT_THAT(explainRun(r, "optimizer.betas"),
              HasSubstr("optimizer.betas is not given\n  type    list\n  action  used\n"));
  EXPECT_EQ(explainRun(r, "optimizer.bets"), "");
  EXPECT_EQ(noSuchKey("optimizer.bets"), "no key 'optimizer.bets', did you mean 'optimizer.betas'?");
}

TEST(Explain, NamesOfOtherSystems) {
  ImportedRun r = run("gpt2_13b");
  EXPECT_THAT(explainRun(r, "tp"), HasSubstr("parallel_config.model_parallel: 8\n"));
  EXPECT_THAT(explainRun(r, "pp"), HasSubstr("parallel_config.pipeline_stage"));
  EXPECT_THAT(explainRun(r, "lr"), HasSubstr("lr_schedule.learning_rate: "));
  EXPECT_THAT(explainRun(r, "zero_stage"), HasSubstr("planner.pin.zero is not given\n"));
}

TEST(Explain, DerivedValues) {
  EXPECT_THAT(explainRun(run("gpt2_124m"), "", /*isWhole=*/true),
              AllOf(HasSubstr("\nderived:\n"), HasSubstr("parameters: 124,439,808"), HasSubstr("global batch: 4")));
  EXPECT_THAT(explainRun(run("gpt2_13b"), "parameters"), HasSubstr("12,853,386,240"));
}

// Without a key, one screen: counts, derived values, used keys by section, and why keys are ignored.
TEST(Explain, BeginsWithOneScreen) {
  std::string text = explainRun(run("gpt2_13b"));
  EXPECT_THAT(text,
              AllOf(testing::ContainsRegex("gpt2_13b.yaml: [0-9]+ keys: [0-9]+ used, [0-9]+ mapped, [0-9]+ ignored"),
                    HasSubstr("parameters: 12,853,386,240"), HasSubstr("lr_schedule: type, learning_rate"),
                    HasSubstr("output_dir: use `espalier run --checkpoint DIR`"), HasSubstr("`--all`")));
  EXPECT_LE(std::ranges::count(text, '\n'), 40);
  EXPECT_THAT(text, Not(HasSubstr("effect")));
}

// A key that asks for a missing feature is a warning here. It is an error when the run file is compiled.
TEST(Explain, RefusedKeysHaveAReason) {
  ImportedRun r = run("gpt2_124m", {"model.model_config.pet_config={pet_type: adalora}"});
  EXPECT_TRUE(r.ok());
  EXPECT_THAT(r.diagnostics.render(), HasSubstr("warning: pet_type 'adalora' is not built, only lora is"));
  EXPECT_THAT(explainRun(r, "pet_type"), AllOf(HasSubstr("action  rejected"), HasSubstr("only lora is")));
  EXPECT_THAT(nlohmann::json::parse(explainRunJson(r, "pet_type"))["warnings"].size(), 1);
  ImportedRun classifier = run("gpt2_124m", {"model.arch.type=GPT2ForSequenceClassification", "run_mode=finetune"});
  EXPECT_THAT(classifier.diagnostics.render(), AllOf(HasSubstr("warning: classification heads are not built"),
                                                     HasSubstr("warning: finetune without load_checkpoint")));
  classifier.diagnostics.refuse();
  EXPECT_FALSE(classifier.ok());
  EXPECT_THAT(classifier.diagnostics.render(), AllOf(HasSubstr("error: classification heads are not built"),
                                                     HasSubstr("error: finetune without load_checkpoint")));
}

TEST(Explain, WeightsThatAreNotLoadedAreRefused) {
  auto refusals = [](std::vector<std::string> sets) {
    ImportedRun r = run("gpt2_124m", std::move(sets));
    EXPECT_TRUE(r.ok());
    r.diagnostics.refuse();
    std::string text;
    for (const Diagnostic &finding : r.diagnostics.sorted())
      if (finding.severity == Severity::Error)
        text += finding.message + "\n";
    return text;
  };
  EXPECT_EQ(refusals({}), "");
  EXPECT_EQ(refusals({"run_mode=finetune", "load_checkpoint=gpt2"}), "");
  EXPECT_EQ(refusals({"load_checkpoint=gpt2", "resume_training=True"}), "");
  EXPECT_EQ(refusals({"run_mode=eval"}), ""); // the command line may give the weights
  EXPECT_EQ(
      refusals({"load_checkpoint=old.ckpt"}),
      "MindSpore's .ckpt files are not read, so that nothing is loaded from 'old.ckpt'; export them as safetensors "
      "with the names of transformers and give that folder\n");
  EXPECT_THAT(refusals({"load_checkpoint=null", "resume_or_finetune_checkpoint=old.ckpt"}), HasSubstr("'old.ckpt'"));
  EXPECT_EQ(
      refusals({"load_checkpoint=out", "resume_training=gpt2-3_10.ckpt"}),
      "'gpt2-3_10.ckpt' names a checkpoint of MindSpore, which is not read; resume_training: True resumes from the "
      "newest one of load_checkpoint\n");
  EXPECT_EQ(refusals({"run_mode=export"}),
            "export is not built, plans train, evaluate or generate, `espalier convert` exports "
            "weights; run_mode: export → train\n");
}

TEST(Explain, StartingWeightsAreUsed) {
  ImportedRun r = run("gpt2_124m", {"run_mode=finetune", "load_checkpoint=there", "resume_training=True"});
  EXPECT_EQ(r.config.loadCheckpoint, "there");
  EXPECT_TRUE(r.config.resume);
  EXPECT_THAT(explainRun(r, "load_checkpoint"), HasSubstr("action  used"));
  ImportedRun nothing = run("gpt2_124m", {"resume_training=True"});
  EXPECT_FALSE(nothing.config.resume);
  EXPECT_THAT(explainRun(nothing, "resume_training"),
              AllOf(HasSubstr("action  accepted"), HasSubstr("load_checkpoint is empty")));
  ImportedRun both = run("gpt2_124m", {"model.model_config.checkpoint_name_or_path=gpt2", "load_checkpoint=there"});
  EXPECT_EQ(both.diagnostics.render(), "");
  EXPECT_THAT(explainRun(both, "checkpoint_name_or_path"), HasSubstr("load_checkpoint is what is loaded"));
}

// MindFormers loads this key together with load_checkpoint. Espalier ignores it with a warning.
TEST(Explain, WeightsOfTheModelSectionAreReportedAsNotLoaded) {
  ImportedRun r = run("gpt2_124m", {"model.model_config.checkpoint_name_or_path=gpt2"});
  r.diagnostics.refuse();
  EXPECT_TRUE(r.ok());
  const char *what = "not loaded: training starts from initial values, not from 'gpt2'";
  EXPECT_THAT(r.diagnostics.render(), HasSubstr(std::string("warning: checkpoint_name_or_path is ") + what));
  EXPECT_THAT(explainRun(r, "checkpoint_name_or_path"), AllOf(HasSubstr("action  rejected"), HasSubstr(what)));
  EXPECT_EQ(run("gpt2_124m", {"model.model_config.checkpoint_name_or_path="}).diagnostics.render(), "");
}

TEST(Explain, TheLimitStatesItsMargin) {
  ImportedRun r = run("tiny_gpt", {"cluster=h100_dgx:1x8"});
  EXPECT_THAT(explainRun(r, "memory"),
              HasSubstr("memory: 74.80 GB  (limit per device: what cluster h100_dgx has, less 2.00 GB reserved and a "
                        "margin of 4 %)"));
  EXPECT_THAT(explainRun(run("tiny_gpt", {"context.max_device_memory=1GB"}), "memory"),
              HasSubstr("memory: 1.00 GB  (limit per device: the lower of"));
}

TEST(Explain, JsonHasTheSame) {
  ImportedRun r = run("gpt2_13b", {"parallel_config.model_parallel=3"});
  nlohmann::json json = nlohmann::json::parse(explainRunJson(r, "model_parallel"));
  ASSERT_EQ(json["keys"].size(), 1u);
  EXPECT_EQ(json["keys"][0]["value"], "3");
  EXPECT_EQ(json["keys"][0]["action"], "used");
  EXPECT_FALSE(json["errors"].empty());
  EXPECT_EQ(nlohmann::json::parse(explainRunJson(run("gpt2_13b"), "parameters"))["derived"][0]["value"],
            "12,853,386,240");
}

TEST(Explain, InvalidUtf8DoesNotStopIt) {
  EXPECT_THAT(explainRunJson(run("tiny_gpt", {"output_dir=\xff\xfe"}), "output_dir"), HasSubstr("output_dir"));
}

TEST(Readme, NamesEveryKeyWithTypeAndAction) {
  std::ifstream file(ESPALIER_SOURCE_DIR "/configs/README.md");
  std::stringstream text;
  text << file.rdbuf();
  std::string readme = text.str();
  for (const KeyRule &rule : runKeys()) {
    if (rule.path.starts_with("eval_dataset") || rule.path.starts_with("train_dataset_task"))
      continue; // the README states once that these accept the keys of train_dataset
    std::string row = "| `" + rule.path + "` | " + keyTypeName(rule.type) + " | ";
    size_t at = readme.find(row);
    ASSERT_NE(at, std::string::npos) << row;
    EXPECT_THAT(readme.substr(at, readme.find('\n', at) - at),
                HasSubstr(std::string("| ") + keyActionName(rule.action) + " | " + rule.effect));
  }
}

} // namespace
} // namespace espalier
