// Converts weights in transformers' format, interprets the model, and compares its loss with transformers
// (transformers.json, made by transformers_reference.py). Covers import-hf, the names and layouts of each model file,
// and the conversion back.
#include "compiler/import/huggingface/hf_config.h"
#include "test/golden/formula_data.h"
#include "test/golden/formula_weights.h"
#include "test/golden/golden_model.h"
#include "tools/checkpoint/convert_command.h"

#include "compiler/driver.h"
#include "runtime/checkpoint/convert/convert.h"
#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/parameter_block.h"
#include "runtime/run/run.h"
#include "test/host_options.h"

#include <cstring>
#include <fmt/format.h>
#include <regex>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

class Transformers : public testing::TestWithParam<std::string> {
protected:
  Transformers() { fs::create_directories(place); }
  ~Transformers() override { fs::remove_all(place); }

  nlohmann::json golden() const {
    return nlohmann::json::parse(std::ifstream(folder + "transformers.json"))[GetParam()];
  }

  /// Returns what an entry sets beside its config.json.
  static std::vector<std::string> setsOf(const nlohmann::json &entry) {
    return entry.value("sets", std::vector<std::string>());
  }

  /// Imports the run file of the model's config.json, with additional settings.
  ImportedRun imported(const std::string &cluster, const std::vector<std::string> &sets = {}) const {
    ImportedHf hf = importHfConfig("config.json", golden()["config"].dump(), {ESPALIER_SOURCE_DIR "/configs"});
    EXPECT_EQ(hf.diagnostics.render(), "");
    std::ofstream(runFile) << hf.yaml << "cluster: " << cluster << "\n";
    ImportOptions options;
    options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
    options.sets = setsOf(golden());
    options.sets.insert(options.sets.end(), sets.begin(), sets.end());
    ImportedRun run = importRun(runFile, options);
    if (!run.ok())
      throw std::runtime_error(run.diagnostics.render());
    return run;
  }

  /// A run with the rules that convert its weights, and a checkpoint of the formula's weights.
  struct Converted {
    ImportedRun run;
    rt::ConvertedModel model;
    fs::path ours;

    Values values() const { return valuesOf(model.model, ours); }
    /// Returns 2 if two ranks can split the dimension, else 1.
    int halves(const std::string &dim) const {
      auto size = run.config.model.dims.find(dim);
      return size == run.config.model.dims.end() || size->second % 2 == 0 ? 2 : 1;
    }
    /// Returns 2 if two stages can have equally many layers, else 1.
    int stages() const { return run.config.model.layerCount() % 2 == 0 ? 2 : 1; }
  };

  /// Writes the formula's weights as transformers does, and converts them.
  Converted converted(ImportedRun run) const {
    rt::ConvertedModel model = convertedModel(run);
    writeFormulaWeights(model, place / "hf");
    fs::path ours = rt::convertToNative(model, rt::WeightSystem::Hf, place / "hf", place / "ours");
    return {std::move(run), std::move(model), std::move(ours)};
  }
  Converted converted() const { return converted(imported("cpu_local:1x1")); }

  /// The model with the formula's weights, for the interpreter.
  std::unique_ptr<GoldenModel> interpreted(const Converted &from) const {
    nlohmann::json numbers = {{"training", {{"batch", 4}}}, {"config", {{"seq", 8}, {"vocab", 19}}}};
    return std::make_unique<GoldenModel>(numbers, runFile, from.values(), setsOf(golden()));
  }

  static std::vector<float> floatsOf(std::span<const std::byte> bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  static Values valuesOf(const rt::WeightModel &model, const fs::path &checkpoint) {
    rt::NativeSource source(model, checkpoint);
    Values values;
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      std::vector<float> read = floatsOf(*source.read(i));
      values[model.parameters[i].name].assign(read.begin(), read.end());
    }
    return values;
  }

  const fs::path place = fs::temp_directory_path() / fmt::format("espalier-transformers-{}", getpid());
  const std::string runFile = place / "run.yaml";
};

TEST_P(Transformers, HasTheSameLoss) {
  Converted from = converted();
  // Except for GPT-2, transformers computes norms and rotary angles in float32 for any type of model.
  double expected = golden()["loss"], tolerance = from.run.config.model.name == "gpt2" ? 1e-9 : 1e-7;
  EXPECT_NEAR(interpreted(from)->firstStep(/*isExact=*/true), expected, tolerance * expected);
  // A conversion to Megatron and back does not change any value.
  for (const char *names : {"mcore", "legacy"}) {
    if (!from.model.rules.contains(names))
      continue;
    rt::convertToMegatron(from.model, from.ours, place / names, names, {from.halves("kv_heads"), from.stages(), 1});
    fs::path back = rt::convertToNative(from.model, rt::WeightSystem::Megatron, place / names, place / "back" / names);
    EXPECT_EQ(valuesOf(from.model.model, back), from.values());
  }
}

std::string bytesOf(const fs::path &file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Graded : public Transformers {
protected:
  static double normOf(const std::vector<double> &values) {
    double squares = 0;
    for (double value : values)
      squares += value * value;
    return std::sqrt(squares);
  }
};

/// Compares every gradient of the first batch. Also converts a file that safetensors wrote for transformers to Espalier
/// and back, which must give equal bytes.
TEST_P(Graded, HasTheGradients) {
  Converted from = converted();
  std::unique_ptr<GoldenModel> model = interpreted(from);
  model->firstStep(/*isExact=*/true);
  const fs::path golden = folder + "gradients/" + GetParam();
  fs::path theirs = rt::convertToNative(from.model, rt::WeightSystem::Hf, golden, place / "gradients");
  Values expected = valuesOf(from.model.model, theirs);
  // A frozen parameter has no gradient, such as the bias of a router, which decides the choice of experts alone.
  std::erase_if(expected, [&](const auto &entry) {
    return !model->gradients.contains(entry.first) && std::ranges::count(entry.second, 0) == std::ssize(entry.second);
  });
  ASSERT_EQ(model->gradients.size(), expected.size());
  double largest = 0;
  for (const auto &[name, gradient] : expected)
    largest = std::max(largest, normOf(gradient));
  for (const auto &[name, gradient] : expected) {
    double norm = 0, difference = 0;
    ASSERT_EQ(model->gradients[name].size(), gradient.size()) << name;
    if (name.ends_with("_k_bias") && normOf(gradient) < 1e-12 * largest) {
      // Without rotary positions, a bias of keys adds one number to all scores of a query, which changes nothing.
      EXPECT_LT(normOf(model->gradients[name]), 1e-12 * largest) << name;
      continue;
    }
    for (size_t i = 0; i < gradient.size(); ++i) {
      norm += gradient[i] * gradient[i];
      difference += std::pow(model->gradients[name][i] - gradient[i], 2);
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(std::sqrt(difference), 2e-6 * std::sqrt(norm)) << name; // recorded in float32, with norms computed in
                                                                      // float32
  }
  Diagnostics diagnostics;
  rt::convertToHf(from.model, theirs, place / "back", {},
                  [&](const std::string &type) { return hfConfigText(from.run, type, diagnostics); });
  EXPECT_EQ(diagnostics.render(), "");
  EXPECT_TRUE(bytesOf(place / "back/model.safetensors") == bytesOf(golden / "model.safetensors"));
  // The written config describes the same model.
  ImportedHf again =
      importHfConfig("config.json", bytesOf(place / "back/config.json"), {ESPALIER_SOURCE_DIR "/configs"});
  EXPECT_EQ(again.diagnostics.render(), "");
}

class Finetuning : public Transformers {
protected:
  Converted finetuned(const std::string &cluster) const {
    return converted(
        imported(cluster, {"lr_schedule.learning_rate=0.01", "optimizer.beta1=0.9", "optimizer.beta2=0.95",
                           "optimizer.eps=1e-6", "optimizer.weight_decay=0", "runner_wrapper.use_clip_grad=False",
                           "run_mode=finetune", "load_checkpoint=" + (place / "hf").string()}));
  }

  static planner::StagePlan stageOf(int first, int layers) {
    return {first, layers, std::vector(layers, planner::Recompute::None)};
  }

  static std::unique_ptr<rt::Program> compiled(const ImportedRun &run, const planner::Plan &plan) {
    mlir::MLIRContext context;
    std::optional<Compiled> compiled = compileRun(context, run.config, plan, hostOptions());
    EXPECT_TRUE(compiled);
    return compiled ? std::make_unique<rt::Program>(std::move(compiled->plan), 1) : nullptr;
  }

  /// Runs the finetuning steps and compares losses. If `load` is empty, the run loads the weights that the plan names.
  void expectSameLosses(const rt::Program &program, const fs::path &load) const {
    rt::RunOptions steps;
    steps.dataset = std::make_shared<FormulaData>();
    steps.steps = 4;
    steps.threads = 1;
    steps.load = load;
    rt::RunResult result = rt::runPlan(program, steps);
    std::vector<double> expected = golden()["finetune"];
    ASSERT_EQ(result.steps.size(), expected.size());
    // Behind gated delta nets, the losses of transformers itself differ by up to 8e-6 between float32 and float64, and
    // by 4e-6 between processors in float64. Three updates by AdamW raise such differences.
    bool hasDeltaNet = golden()["config"].contains("linear_num_value_heads");
    double tolerance = hasDeltaNet ? 3e-5 : 1e-5;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(result.steps[i].loss, expected[i], tolerance * expected[i]) << "from '" << load << "', step " << i;
  }
};

/// Finetuning from each weight format has the losses of transformers, step by step.
TEST_P(Finetuning, HasTheSameLoss) {
  Converted from = finetuned("cpu_local:1x4");
  std::vector<fs::path> forms = {"", from.ours};
  for (auto [names, tp] : {std::pair("mcore", from.halves("kv_heads")), {"legacy", 1}})
    if (from.model.rules.contains(names)) {
      rt::convertToMegatron(from.model, from.ours, place / names, names, {tp, from.stages(), 1});
      forms.push_back(place / names);
    }

  planner::Plan plan;
  plan.tp = from.halves("kv_heads");
  plan.pp = plan.microBatchSize = plan.microBatches = 2;
  int layers = from.run.config.model.layerCount(), first = layers / 2;
  plan.stages = {stageOf(0, first), stageOf(first, layers - first)};
  std::unique_ptr<rt::Program> program = compiled(from.run, plan);
  ASSERT_TRUE(program);
  for (const fs::path &form : forms)
    expectSameLosses(*program, form);
}

/// Finetuning on one rank has the same losses.
TEST_P(Finetuning, HasTheSameLossUnsplit) {
  Converted from = finetuned("cpu_local:1x1");
  planner::Plan plan;
  plan.microBatchSize = 4;
  plan.stages = {stageOf(0, from.run.config.model.layerCount())};
  std::unique_ptr<rt::Program> program = compiled(from.run, plan);
  ASSERT_TRUE(program);
  expectSameLosses(*program, "");
}

class MegatronExperts : public Transformers {
protected:
  /// Returns rows [begin, end) of a tensor with rows of `width`, from column `column` on.
  static std::vector<float> formula(const std::string &name, int64_t begin, int64_t end, int64_t width,
                                    int64_t column) {
    std::vector<float> values;
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = column; i < width; ++i)
        values.push_back(
            static_cast<float>(rt::initialValue(42, name, rt::pb::Initialization::NORMAL, 0.3, row * width + i)));
    return values;
  }
};

/// A rank of two has the second half of the rows of gate and up projection, expert by expert. Names of grouped products
/// are also read.
TEST_P(MegatronExperts, EqualTransformersWeights) {
  Converted from = converted();
  rt::convertToMegatron(from.model, from.ours, place / "mcore", "mcore", {2, 1, 1});
  const fs::path iteration = place / "mcore/iter_0000001";
  auto open = [&](const char *rank) {
    return rt::openTorchEntry(std::make_shared<const rt::TorchFile>(iteration / rank / "model_optim_rng.pt"), "model");
  };
  std::unique_ptr<rt::WeightSource> source = open("mp_rank_01");
  bool isMixtral = GetParam() == "mixtral";
  const std::string layer = isMixtral ? "model.layers.1.block_sparse_moe." : "model.layers.1.mlp.";
  const std::string expert = layer + "experts.2.", theirs = "decoder.layers.1.mlp.experts.local_experts.2.";
  const int64_t hidden = 24, ffn = isMixtral ? 20 : 12, half = ffn / 2;
  std::vector<float> first = formula(expert + (isMixtral ? "w1" : "gate_proj") + ".weight", half, ffn, hidden, 0);
  std::vector<float> up = formula(expert + (isMixtral ? "w3" : "up_proj") + ".weight", half, ffn, hidden, 0);
  first.insert(first.end(), up.begin(), up.end());
  EXPECT_EQ(floatsOf(source->read(theirs + "linear_fc1.weight")), first);
  EXPECT_EQ(floatsOf(source->read(theirs + "linear_fc2.weight")),
            formula(expert + (isMixtral ? "w2" : "down_proj") + ".weight", 0, hidden, ffn, half));
  EXPECT_EQ(floatsOf(source->read("decoder.layers.1.mlp.router.weight")),
            formula(layer + "gate.weight", 0, from.model.model.dims.at("expert"), hidden, 0));

  for (const char *rank : {"mp_rank_00", "mp_rank_01"}) {
    std::unique_ptr<rt::WeightSource> before = open(rank);
    std::vector<rt::WrittenTensor> tensors;
    for (const auto &[name, listed] : before->tensors()) {
      std::string grouped =
          std::regex_replace(name, std::regex("local_experts\\.([0-9]+)\\.(linear_fc[12]\\.weight)"), "$2$1");
      tensors.push_back(
          {grouped, listed.type, listed.shape, [source = before.get(), name = name] { return source->read(name); }});
    }
    fs::create_directories(place / "grouped" / rank);
    rt::writeTorchModel(place / "grouped" / rank / "model_optim_rng.pt",
                        std::vector<rt::TorchNumber>{{"checkpoint_version", 3, /*isWhole=*/false}}, tensors);
  }
  fs::path back = rt::convertToNative(from.model, rt::WeightSystem::Megatron, place / "grouped", place / "back");
  EXPECT_EQ(valuesOf(from.model.model, back), from.values());
}

class MegatronLatents : public MegatronExperts {};

/// Every rank has the products that make the latents, and its heads of the products that read them. A dense layer has
/// the norm of its MLP beside the product that follows, a layer with experts has the norm by itself.
TEST_P(MegatronLatents, EqualTransformersWeights) {
  Converted from = converted();
  rt::convertToMegatron(from.model, from.ours, place / "mcore", "mcore", {2, 1, 1});
  std::unique_ptr<rt::WeightSource> source = rt::openTorchEntry(
      std::make_shared<const rt::TorchFile>(place / "mcore/iter_0000001/mp_rank_01/model_optim_rng.pt"), "model");
  auto read = [&](const std::string &name) { return floatsOf(source->read("decoder.layers." + name)); };
  const std::string attention = "model.layers.1.self_attn.";
  const int64_t hidden = 24, keyRank = 12, keys = 6 + 4, values = 10, heads = 4;
  EXPECT_EQ(read("1.input_layernorm.weight"), formula("model.layers.1.input_layernorm.weight", 0, hidden, 1, 0));
  EXPECT_EQ(read("1.self_attention.linear_kv_down_proj.weight"),
            formula(attention + "kv_a_proj_with_mqa.weight", 0, keyRank + 4, hidden, 0));
  EXPECT_EQ(read("1.self_attention.linear_kv_up_proj.layer_norm_weight"),
            formula(attention + "kv_a_layernorm.weight", 0, keyRank, 1, 0));
  const int64_t rows = heads * (6 + values);
  EXPECT_EQ(read("1.self_attention.linear_kv_up_proj.weight"),
            formula(attention + "kv_b_proj.weight", rows / 2, rows, keyRank, 0));
  EXPECT_EQ(read("1.self_attention.linear_proj.weight"),
            formula(attention + "o_proj.weight", 0, hidden, heads * values, heads * values / 2));
  if (from.model.model.dims.contains("q_rank")) {
    const int64_t rank = 10;
    EXPECT_EQ(read("1.self_attention.linear_q_down_proj.weight"),
              formula(attention + "q_a_proj.weight", 0, rank, hidden, 0));
    EXPECT_EQ(read("1.self_attention.linear_q_up_proj.layer_norm_weight"),
              formula(attention + "q_a_layernorm.weight", 0, rank, 1, 0));
    EXPECT_EQ(read("1.self_attention.linear_q_up_proj.weight"),
              formula(attention + "q_b_proj.weight", heads * keys / 2, heads * keys, rank, 0));
  } else {
    EXPECT_EQ(read("1.self_attention.linear_q_proj.weight"),
              formula(attention + "q_proj.weight", heads * keys / 2, heads * keys, hidden, 0));
  }
  EXPECT_EQ(read("0.mlp.linear_fc1.layer_norm_weight"),
            formula("model.layers.0.post_attention_layernorm.weight", 0, hidden, 1, 0));
  EXPECT_EQ(read("1.pre_mlp_layernorm.weight"),
            formula("model.layers.1.post_attention_layernorm.weight", 0, hidden, 1, 0));
  EXPECT_FALSE(source->tensors().contains("decoder.layers.0.pre_mlp_layernorm.weight"));
  EXPECT_FALSE(source->tensors().contains("decoder.layers.1.mlp.linear_fc1.layer_norm_weight"));
  EXPECT_EQ(read("1.mlp.router.expert_bias"),
            formula("model.layers.1.mlp.gate.e_score_correction_bias", 0, from.model.model.dims.at("expert"), 1, 0));
}

std::string nameOf(const testing::TestParamInfo<std::string> &info) { return info.param; }

/// Returns the models of transformers.json, or those of them whose gradients are recorded.
std::vector<std::string> models(bool areGraded = false) {
  std::vector<std::string> names;
  const nlohmann::json recorded = nlohmann::json::parse(std::ifstream(folder + "transformers.json"));
  for (const auto &[name, entry] : recorded.items())
    if (entry.is_object() && (!areGraded || fs::exists(folder + "gradients/" + name)))
      names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, Transformers, testing::ValuesIn(models()), nameOf);
INSTANTIATE_TEST_SUITE_P(Models, Graded, testing::ValuesIn(models(/*areGraded=*/true)), nameOf);
INSTANTIATE_TEST_SUITE_P(Models, Finetuning, testing::ValuesIn(models()), nameOf);
INSTANTIATE_TEST_SUITE_P(Models, MegatronExperts,
                         testing::Values("mixtral", "qwen3_moe", "qwen2_moe", "glm4_moe", "glm4_moe_qk_norm",
                                         "deepseek_v3_experts", "deepseek_v3_experts_full_q"),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Models, MegatronLatents, testing::Values("deepseek_v3_experts", "deepseek_v3_experts_full_q"),
                         nameOf);

} // namespace
} // namespace espalier
