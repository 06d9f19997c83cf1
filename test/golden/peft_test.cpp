// Compares low-rank adapters with peft (peft.json, made by peft_reference.py): losses, gradients and merged weights,
// and the conversion of peft's files in both directions.
#include "compiler/import/huggingface/hf_config.h"
#include "test/golden/formula_data.h"
#include "test/golden/formula_weights.h"
#include "test/golden/golden_model.h"
#include "tools/checkpoint/convert_command.h"

#include "compiler/driver.h"
#include "runtime/checkpoint/convert/peft.h"
#include "runtime/run/run.h"
#include "test/host_options.h"

#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string bytesOf(const fs::path &file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Peft : public testing::TestWithParam<const char *> {
protected:
  Peft() {
    fs::create_directories(place);
    std::string config =
        nlohmann::json::parse(std::ifstream(folder + "transformers.json"))[GetParam()]["config"].dump();
    ImportedHf hf = importHfConfig("config.json", config, {ESPALIER_SOURCE_DIR "/configs"});
    std::ofstream(baseFile) << hf.yaml << "cluster: cpu_local:1x4\n";
    std::ofstream(runFile) << "base_config: " << baseFile
                           << "\nmodel:\n  model_config:\n    pet_config:\n      pet_type: "
                           << "lora\n      lora_rank: " << adapter()["r"]
                           << "\n      lora_alpha: " << adapter()["lora_alpha"]
                           << "\n      lora_dropout: 0\n      target_modules: " << adapter()["target_modules"].dump()
                           << "\n";
    run = imported(runFile);
    base = imported(baseFile);
    converted = convertedModel(run);
    writeFormulaWeights(converted, place / "hf");
    writeAdapters(place / "peft");
    joined = rt::convertToNative(converted, rt::WeightSystem::Peft, place / "peft", place / "ours", place / "hf");
  }
  ~Peft() override { fs::remove_all(place); }

  static nlohmann::json golden() { return nlohmann::json::parse(std::ifstream(folder + "peft.json"))[GetParam()]; }
  static nlohmann::json adapter() { return golden()["adapter"]; }

  static ImportedRun imported(const std::string &file, const std::vector<std::string> &sets = {}) {
    ImportOptions options;
    options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
    options.sets = sets;
    ImportedRun run = importRun(file, options);
    if (!run.ok())
      throw std::runtime_error(run.diagnostics.render());
    return run;
  }

  /// Writes the formula's adapters as peft does, with other values of adapter_config.json.
  void writeAdapters(const fs::path &there, const nlohmann::json &changes = {}) const {
    rt::NameMap names(converted.adapters.model, converted.rules.at("peft"), "peft");
    writeFormulaTensors(names, there / "adapter_model.safetensors");
    nlohmann::json config = {{"peft_type", "LORA"}, {"bias", "none"}};
    config.update(adapter());
    if (changes.is_object())
      config.update(changes);
    std::ofstream(there / "adapter_config.json") << config.dump();
  }

  static Values valuesOf(const rt::WeightModel &model, const rt::NativeSource &source) {
    Values values;
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      auto bytes = source.read(i);
      std::vector<float> floats(bytes->size() / sizeof(float));
      std::memcpy(floats.data(), bytes->data(), bytes->size());
      values[model.parameters[i].name].assign(floats.begin(), floats.end());
    }
    return values;
  }

  Values valuesWithAdapters() const {
    const rt::WeightModel &weights = converted.model, &adapters = converted.adapters.model;
    Values values = valuesOf(weights, rt::NativeSource(weights, joined, &adapters));
    values.merge(valuesOf(adapters, rt::NativeSource(adapters, joined, &weights)));
    return values;
  }

  /// Returns the file of gradients that peft's names have, and a checkpoint of them.
  static fs::path recordedFile() { return folder + "gradients/" + GetParam() + "_adapters/adapter_model.safetensors"; }
  fs::path recorded() const {
    writeAdapters(place / "recorded");
    fs::copy_file(recordedFile(), place / "recorded/adapter_model.safetensors", fs::copy_options::overwrite_existing);
    return rt::convertToNative(converted, rt::WeightSystem::Peft, place / "recorded", place / "read", place / "hf");
  }

  static nlohmann::json sizes() { return {{"training", {{"batch", 4}}}, {"config", {{"seq", 8}, {"vocab", 19}}}}; }

  /// Returns the error of reading adapters with other values of adapter_config.json.
  std::string errorOf(const nlohmann::json &changes) const {
    writeAdapters(place / "other", changes);
    return errorAt(place / "other");
  }
  std::string errorAt(const fs::path &there) const {
    try {
      rt::convertToNative(converted, rt::WeightSystem::Peft, there, place / "refused", place / "hf");
    } catch (const std::exception &error) {
      EXPECT_FALSE(fs::exists(place / "refused"));
      return error.what();
    }
    return "";
  }

  /// float64 in peft; except for GPT-2, transformers computes norms and rotary angles in float32.
  static double tolerance() { return std::string(GetParam()) == "gpt2" ? 1e-9 : 1e-7; }

  const fs::path place = fs::temp_directory_path() / fmt::format("espalier-peft-{}", getpid());
  const std::string runFile = place / "run.yaml", baseFile = place / "base.yaml";
  ImportedRun run, base;
  rt::ConvertedModel converted;
  fs::path joined; ///< a checkpoint with the formula's weights and adapters
};

TEST_P(Peft, HasTheSameLossAndGradients) {
  GoldenModel model(sizes(), runFile, valuesWithAdapters());
  double expected = golden()["loss"];
  EXPECT_NEAR(model.firstStep(/*isExact=*/true), expected, tolerance() * expected);
  fs::path ours = recorded();
  const rt::WeightModel &adapters = converted.adapters.model;
  Values wanted = valuesOf(adapters, rt::NativeSource(adapters, ours, &converted.model));
  ASSERT_EQ(model.gradients.size(), wanted.size()); // frozen parameters have none
  for (const auto &[name, gradient] : wanted) {
    double norm = 0, difference = 0;
    ASSERT_EQ(model.gradients[name].size(), gradient.size()) << name;
    for (size_t i = 0; i < gradient.size(); ++i) {
      norm += gradient[i] * gradient[i];
      difference += std::pow(model.gradients[name][i] - gradient[i], 2);
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(std::sqrt(difference), 2e-6 * std::sqrt(norm)) << name; // recorded in float32
  }
}

/// The merged weights of the model without adapters have the loss of the model with adapters.
TEST_P(Peft, MergesIntoTheWeights) {
  rt::HfExport options;
  options.mergesAdapters = true;
  rt::convertToHf(converted, joined, place / "merged", options, [](const std::string &) { return "{}"; });
  rt::ConvertedModel plain = convertedModel(base);
  fs::path ours = rt::convertToNative(plain, rt::WeightSystem::Hf, place / "merged", place / "plain");
  GoldenModel model(sizes(), baseFile, valuesOf(plain.model, rt::NativeSource(plain.model, ours)));
  double expected = golden()["merged"];
  EXPECT_NEAR(model.firstStep(/*isExact=*/true), expected, 1e-6 * expected); // merged weights are rounded to float32
}

/// A file that safetensors wrote for peft is read and written with equal bytes.
TEST_P(Peft, WritesTheSameFile) {
  rt::writePeftFolder(converted, recorded(), place / "back");
  EXPECT_TRUE(bytesOf(place / "back/adapter_model.safetensors") == bytesOf(recordedFile()));
  nlohmann::json config = nlohmann::json::parse(bytesOf(place / "back/adapter_config.json"));
  EXPECT_EQ(config["r"], adapter()["r"]);
  EXPECT_EQ(config["lora_alpha"], adapter()["lora_alpha"].get<double>());
  EXPECT_EQ(config["fan_in_fan_out"], adapter().value("fan_in_fan_out", false));
  auto sorted = [](std::vector<std::string> names) {
    std::ranges::sort(names);
    return names;
  };
  EXPECT_EQ(sorted(config["target_modules"]), sorted(adapter()["target_modules"]));
}

/// Each contradiction is one error, and nothing is written.
TEST_P(Peft, RefusesOtherAdapters) {
  EXPECT_THAT(errorOf({{"r", 7}}), HasSubstr("has rank 7, lora_rank of the run file is"));
  EXPECT_THAT(errorOf({{"lora_alpha", 99}}), HasSubstr("has lora_alpha 99, the run file has"));
  EXPECT_THAT(errorOf({{"peft_type", "IA3"}}), HasSubstr("its peft_type is 'IA3', only LORA is read"));
  EXPECT_THAT(errorOf({{"use_dora", true}}), HasSubstr("use_dora is true: DoRA learns the length"));
  EXPECT_THAT(errorOf({{"modules_to_save", {"lm_head"}}}),
              HasSubstr("modules_to_save is [\"lm_head\"]: peft trained these modules beside the adapters"));
  EXPECT_THAT(errorOf({{"use_rslora", true}}), HasSubstr("as LoRA without use_rslora counts, the run file has"));
  EXPECT_THAT(errorOf({{"r", "many"}}), HasSubstr("damaged"));
  ImportedRun fewer = imported(runFile, {"model.model_config.pet_config.target_modules=[" +
                                         adapter()["target_modules"][0].get<std::string>() + "]"});
  ImportedRun more = imported(runFile, {"model.model_config.pet_config.target_modules='.*'"});
  converted = convertedModel(fewer);
  EXPECT_THAT(errorAt(place / "peft"), HasSubstr("belongs to no product that target_modules of the run file selects"));
  converted = convertedModel(more);
  EXPECT_THAT(errorAt(place / "peft"), HasSubstr("whose product target_modules of the run file selects"));
  fs::remove(place / "peft/adapter_config.json");
  EXPECT_THAT(errorAt(place / "peft"), HasSubstr("has no adapter_config.json"));
}

/// Patterns that give each module the rank and the alpha of the run file are read; others are refused by their module.
TEST_P(Peft, ReadsPatternsOfRankAndAlpha) {
  nlohmann::json rank = adapter()["r"], alpha = adapter()["lora_alpha"];
  std::string target = adapter()["target_modules"][0];
  EXPECT_EQ(
      errorOf({{"r", 99}, {"rank_pattern", {{".*", rank}}}, {"lora_alpha", 7}, {"alpha_pattern", {{".*", alpha}}}}),
      "");
  fs::rename(place / "refused", place / "patterns");
  EXPECT_EQ(errorOf({{"rank_pattern", {{"nothing.of.it", 2}, {target.substr(1), 2}}}}), ""); // ends of whole names only
  const fs::path weights = "step-00000000/weights.safetensors";
  EXPECT_TRUE(bytesOf(place / "patterns" / weights) == bytesOf(place / "refused" / weights));
  fs::remove_all(place / "refused");
  EXPECT_THAT(errorOf({{"rank_pattern", {{target, 7}}}}),
              testing::AllOf(HasSubstr("adapter_config.json: rank_pattern: "), HasSubstr(target + ": has rank 7, ")));
  EXPECT_THAT(errorOf({{"alpha_pattern", {{"0..*" + target, 7}}}}),
              testing::AllOf(HasSubstr("alpha_pattern: "), HasSubstr(".0."), HasSubstr(": has lora_alpha 7, ")));
  EXPECT_THAT(errorOf({{"rank_pattern", {{"(", 7}}}}), HasSubstr("adapter_config.json"));
  EXPECT_THAT(errorOf({{"rank_pattern", {{target, "two"}}}}), HasSubstr("damaged"));
}

/// use_rslora is another alpha, with the same values.
TEST_P(Peft, ReadsRankStabilizedScales) {
  double alpha = adapter()["lora_alpha"].get<double>() / std::sqrt(adapter()["r"].get<double>());
  EXPECT_EQ(errorOf({{"use_rslora", true}, {"lora_alpha", alpha}}), "");
  fs::rename(place / "refused", place / "stabilized");
  EXPECT_EQ(errorOf(nlohmann::json::object()), "");
  const fs::path weights = "step-00000000/weights.safetensors";
  EXPECT_TRUE(bytesOf(place / "stabilized" / weights) == bytesOf(place / "refused" / weights));
}

/// Training under splits has peft's losses, from joined weights; adapters of a base alone start from initial values.
TEST_P(Peft, TrainsWithTheSameLosses) {
  ImportedRun tuned =
      imported(runFile, {"lr_schedule.learning_rate=0.01", "optimizer.beta1=0.9", "optimizer.beta2=0.95",
                         "optimizer.eps=1e-6", "optimizer.weight_decay=0", "runner_wrapper.use_clip_grad=False",
                         "run_mode=finetune", "load_checkpoint=" + joined.string()});
  planner::Plan whole, split;
  whole.microBatchSize = 4;
  whole.stages = {{0, 2, {planner::Recompute::None, planner::Recompute::None}}};
  split.tp = split.pp = split.microBatchSize = split.microBatches = 2;
  split.stages = {{0, 1, {planner::Recompute::None}}, {1, 1, {planner::Recompute::Full}}};
  std::vector<double> expected = golden()["finetune"];
  for (const planner::Plan &plan : {whole, split}) {
    mlir::MLIRContext context;
    std::optional<Compiled> compiled = compileRun(context, tuned.config, plan, hostOptions());
    ASSERT_TRUE(compiled);
    rt::Program program(std::move(compiled->plan), 1);
    rt::RunOptions options;
    options.dataset = std::make_shared<FormulaData>();
    options.steps = 4;
    options.threads = 1;
    rt::RunResult result = rt::runPlan(program, options);
    ASSERT_EQ(result.steps.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(result.steps[i].loss, expected[i], 1e-5 * expected[i]) << "step " << i;
    options.load = place / "hf"; // matrices B are zero, so that the first loss is that of the base
    options.steps = 1;
    nlohmann::json plain = nlohmann::json::parse(std::ifstream(folder + "transformers.json"))[GetParam()]["finetune"];
    EXPECT_NEAR(rt::runPlan(program, options).steps[0].loss, plain[0].get<double>(), 1e-5 * plain[0].get<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Peft, testing::Values("gpt2", "llama", "deepseek_v3"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

} // namespace
} // namespace espalier
