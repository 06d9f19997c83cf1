// Weights as transformers has them, converted and interpreted, against losses of transformers (transformers.json, made
// by transformers_reference.py): import-hf, the names and layouts of each model file, and the way back.
#include "compiler/import/hf_config.h"
#include "test/golden/formula_weights.h"
#include "test/golden/golden_model.h"
#include "tools/convert_command.h"

#include "compiler/driver.h"
#include "runtime/checkpoint/convert/convert.h"
#include "runtime/parameter_block.h"
#include "runtime/train/run.h"

#include <fmt/format.h>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

class Transformers : public testing::TestWithParam<const char *> {
protected:
  Transformers() { fs::create_directories(place); }
  ~Transformers() override { fs::remove_all(place); }

  static Values valuesOf(const rt::WeightModel &model, const fs::path &checkpoint) {
    rt::NativeSource source(model, checkpoint);
    Values values;
    for (size_t i = 0; i < model.parameters.size(); ++i)
      for (uint64_t e = 0; e < model.parameters[i].elements(); ++e)
        values[model.parameters[i].name].push_back(rt::loadElement(rt::pb::F32, source.read(i)->data(), e));
    return values;
  }

  const fs::path place = fs::temp_directory_path() / fmt::format("espalier-transformers-{}", getpid());
};

TEST_P(Transformers, LosesTheSame) {
  nlohmann::json golden = nlohmann::json::parse(std::ifstream(folder + "transformers.json"))[GetParam()];
  ImportedHf hf = importHfConfig("config.json", golden["config"].dump(), {ESPALIER_SOURCE_DIR "/configs"});
  ASSERT_EQ(hf.diagnostics.render(), "");
  const std::string runFile = place / "run.yaml";
  std::ofstream(runFile) << hf.yaml << "cluster: cpu_local:1x1\n";
  ImportOptions options;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
  ImportedRun run = importRun(runFile, options);
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  rt::ConvertedModel converted = convertedModel(run);
  writeFormulaWeights(converted, place / "hf");
  fs::path ours = rt::convertToNative(converted, rt::WeightSystem::Hf, place / "hf", place / "ours");
  nlohmann::json numbers = {{"training", {{"batch", 4}}}, {"config", {{"seq", 8}, {"vocab", 19}}}};
  GoldenModel model(numbers, runFile, valuesOf(converted.model, ours));
  // All but its GPT-2 compute norms and rotary angles in float32, whatever the type of the model.
  double expected = golden["loss"], tolerance = run.config.model.name == "gpt2" ? 1e-9 : 1e-7;
  EXPECT_NEAR(model.firstStep(/*isExact=*/true), expected, tolerance * expected);
  // And through Megatron's form and back nothing has moved.
  for (const char *names : {"mcore", "legacy"}) {
    if (!converted.rules.contains(names))
      continue;
    rt::convertToMegatron(converted, ours, place / names, names, {2, 2, 1});
    fs::path back = rt::convertToNative(converted, rt::WeightSystem::Megatron, place / names, place / "back" / names);
    EXPECT_EQ(valuesOf(converted.model, back), valuesOf(converted.model, ours));
  }
}

/// The samples of reference.py: token t of sample i is a formula, and the one behind it is the label.
class FormulaData : public rt::Dataset {
public:
  FormulaData() : Dataset(optionsOf()) {}
  int64_t sampleCount() const override { return 16; }
  void readTokens(int64_t i, std::span<int32_t> out) const override {
    for (int64_t t = 0; t < static_cast<int64_t>(out.size()); ++t)
      out[t] = static_cast<int32_t>((5 * i * i + 3 * t * t + 7 * i * t + 2 * i + t) % 19);
  }

private:
  static rt::DatasetOptions optionsOf() {
    rt::DatasetOptions options;
    options.seqLength = 8;
    return options;
  }
};

class Finetuning : public Transformers {};

/// Finetuned from each form that its weights can have, it loses what transformers does, step by step.
TEST_P(Finetuning, LosesTheSame) {
  nlohmann::json golden = nlohmann::json::parse(std::ifstream(folder + "transformers.json"))[GetParam()];
  const std::string runFile = place / "run.yaml";
  std::ofstream(runFile)
      << importHfConfig("config.json", golden["config"].dump(), {ESPALIER_SOURCE_DIR "/configs"}).yaml
      << "cluster: cpu_local:1x4\n";
  ImportOptions options;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
  options.sets = {"lr_schedule.learning_rate=0.01",
                  "optimizer.beta1=0.9",
                  "optimizer.beta2=0.95",
                  "optimizer.eps=1e-6",
                  "optimizer.weight_decay=0",
                  "runner_wrapper.use_clip_grad=False",
                  "run_mode=finetune",
                  "load_checkpoint=" + (place / "hf").string()};
  ImportedRun run = importRun(runFile, options);
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  rt::ConvertedModel converted = convertedModel(run);
  writeFormulaWeights(converted, place / "hf");
  fs::path ours = rt::convertToNative(converted, rt::WeightSystem::Hf, place / "hf", place / "ours");
  rt::convertToMegatron(converted, ours, place / "mcore", "mcore", {2, 2, 1});
  rt::convertToMegatron(converted, ours, place / "legacy", "legacy", {1, 2, 1});

  planner::Plan plan;
  plan.tp = plan.pp = plan.microBatchSize = plan.microBatches = 2;
  plan.stages = {{0, 1, {planner::Recompute::None}}, {1, 1, {planner::Recompute::None}}};
  mlir::MLIRContext context;
  std::optional<Compiled> compiled = compileRun(context, run.config, plan, {});
  ASSERT_TRUE(compiled);
  rt::Program program(std::move(compiled->plan), 1);
  for (const char *form : {"", "ours", "mcore", "legacy"}) { // "": what the plan says
    rt::RunOptions steps;
    steps.dataset = std::make_shared<FormulaData>();
    steps.steps = 4;
    steps.threads = 1;
    steps.load = *form ? place / form : fs::path();
    rt::RunResult result = rt::runPlan(program, steps);
    ASSERT_EQ(result.steps.size(), golden["finetune"].size());
    for (size_t i = 0; i < result.steps.size(); ++i)
      EXPECT_NEAR(result.steps[i].loss, double(golden["finetune"][i]), 1e-5 * double(golden["finetune"][i]))
          << "from '" << form << "', step " << i;
  }
}

std::string nameOf(const testing::TestParamInfo<const char *> &info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(Models, Transformers,
                         testing::Values("gpt2", "llama", "llama_tied", "mixtral", "qwen3_moe"), nameOf);
INSTANTIATE_TEST_SUITE_P(Models, Finetuning, testing::Values("gpt2", "llama", "llama_tied"), nameOf);

} // namespace
} // namespace espalier
