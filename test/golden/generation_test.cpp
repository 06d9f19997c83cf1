// Compares compiled plans under several splits with the greedy continuations of transformers in generation.json (made
// by generation_reference.py), for a batch of prompts with unequal lengths. Also checks that the cache does not change
// logits.
#include "compiler/choose/choose_generation.h"
#include "compiler/driver.h"
#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/run/import_run.h"
#include "runtime/checkpoint/start.h"
#include "runtime/device/cpu/backend.h"
#include "runtime/device/cpu/packed_weights.h"
#include "runtime/generate/generator.h"
#include "runtime/generate/sample.h"
#include "test/golden/formula_weights.h"
#include "test/host_options.h"
#include "tools/checkpoint/convert_command.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

struct Split {
  std::string name;
  std::vector<std::string> sets;
};

/// A model of transformers, with its weights converted once to a native checkpoint.
class Subject {
public:
  explicit Subject(const std::string &name)
      : place(fs::temp_directory_path() / fmt::format("espalier-{}-{}", name, getpid())) {
    golden = nlohmann::json::parse(std::ifstream(ESPALIER_SOURCE_DIR "/test/golden/generation.json"))[name];
    ImportedHf hf = importHfConfig("config.json", golden["config"].dump(), {ESPALIER_SOURCE_DIR "/configs"});
    fs::create_directories(place);
    std::ofstream(place / "run.yaml") << hf.yaml << "cluster: cpu_local:1x4\n";
    rt::ConvertedModel converted = convertedModel(run({}));
    writeFormulaWeights(converted, place / "hf");
    checkpoint = rt::convertToNative(converted, rt::WeightSystem::Hf, place / "hf", place / "ours");
  }
  ~Subject() { fs::remove_all(place); }

  ImportedRun run(const std::vector<std::string> &sets) const {
    ImportOptions options;
    options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
    options.sets = {"run_mode=predict", "runner_config.batch_size=4"};
    options.sets.insert(options.sets.end(), sets.begin(), sets.end());
    return importRun(place / "run.yaml", options);
  }

  std::vector<Tokens> prompts() const { return golden["prompts"].get<std::vector<Tokens>>(); }
  int64_t context() const {
    const nlohmann::json &config = golden["config"];
    return config[config.contains("n_positions") ? "n_positions" : "max_position_embeddings"];
  }
  std::vector<Tokens> tokens() const { return golden["tokens"].get<std::vector<Tokens>>(); }

  nlohmann::json golden;
  fs::path place, checkpoint;
};

const Subject &subjectOf(const std::string &name) {
  static std::map<std::string, std::unique_ptr<Subject>> subjects;
  std::unique_ptr<Subject> &subject = subjects[name];
  if (!subject)
    subject = std::make_unique<Subject>(name);
  return *subject;
}

/// Compiles a run for generation on the CPU.
std::unique_ptr<rt::Program> programOf(const ImportedRun &run) {
  EXPECT_TRUE(run.ok()) << run.diagnostics.render();
  mlir::MLIRContext context;
  ChosenPlan chosen = chooseGeneration(context, run.config);
  EXPECT_TRUE(chosen.plan) << chosen.reason;
  std::optional<Compiled> compiled = compileRun(context, run.config, *chosen.plan, hostOptions());
  EXPECT_TRUE(compiled);
  return std::make_unique<rt::Program>(std::move(compiled->plan), 1);
}

/// A compiled plan of a subject, with running ranks.
struct Running {
  Running(const Subject &subject, const Split &split) {
    program = programOf(subject.run(split.sets));
    weights = std::make_unique<rt::StartingWeights>(*program, subject.checkpoint, rt::NonFinite::Refused);
    decoder = std::make_unique<rt::Decoder>(*program, weights.get(), 1);
  }

  std::vector<Tokens> greedy(const std::vector<Tokens> &prompts, int64_t tokens) const {
    rt::Generator generator(*decoder, nullptr);
    std::vector<Tokens> texts(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i)
      generator.add({.prompt = prompts[i], .maxTokens = tokens}, [&to = texts[i]](const rt::News &news) {
        if (news.end)
          to = news.end->tokens;
        return true;
      });
    while (!generator.isIdle())
      generator.step();
    return texts;
  }

  /// Generates 8 tokens per prompt, with scores. Adds a prompt after each `between` steps.
  std::vector<rt::Completion> scored(const std::vector<Tokens> &prompts, int64_t between) const {
    rt::Generator generator(*decoder, nullptr);
    std::vector<rt::Completion> texts(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      generator.add({.prompt = prompts[i], .maxTokens = 8, .bestTokens = 0}, [&to = texts[i]](const rt::News &news) {
        if (news.end)
          to = *news.end;
        return true;
      });
      for (int64_t step = 0; step < between && !generator.isIdle(); ++step)
        generator.step();
    }
    while (!generator.isIdle())
      generator.step();
    return texts;
  }

  /// Returns the logits after the last token of a text.
  std::span<const float> logitsBehind(const Tokens &text) const {
    auto most = static_cast<size_t>(decoder->sizes().promptTokens);
    for (size_t at = 0; at < text.size(); at += most) {
      rt::Feed part = {0, static_cast<int64_t>(at), std::span(text).subspan(at, std::min(most, text.size() - at))};
      decoder->prefill({&part, 1});
    }
    return decoder->logits(0);
  }

  std::unique_ptr<rt::Program> program;
  std::unique_ptr<rt::StartingWeights> weights;
  std::unique_ptr<rt::Decoder> decoder;
};

std::vector<std::string> axes(int tp, int pp) {
  return {fmt::format("parallel_config.model_parallel={}", tp), fmt::format("parallel_config.pipeline_stage={}", pp),
          fmt::format("cluster=cpu_local:1x{}", tp * pp)};
}

class Generation : public testing::TestWithParam<std::tuple<const char *, Split>> {};

TEST_P(Generation, GeneratesTheTokensOfTransformers) {
  const auto &[name, split] = GetParam();
  const Subject &subject = subjectOf(name);
  ASSERT_GT(subject.golden["closest"].get<double>(), 1e-4);
  Running model(subject, split);
  std::vector<std::vector<float>> logits = subject.golden["logits"];
  for (size_t i = 0; i < logits.size(); ++i) {
    std::span<const float> said = model.logitsBehind(subject.prompts()[i]).first(logits[i].size());
    EXPECT_THAT(std::vector(said.begin(), said.end()), testing::Pointwise(testing::FloatNear(1e-4F), logits[i]))
        << "prompt " << i;
  }
  std::vector<Tokens> expected = subject.tokens();
  EXPECT_EQ(model.greedy(subject.prompts(), static_cast<int64_t>(expected[0].size())), expected);
}

/// Returns settings that spread the batch over replicas, one of which has one text more than the other.
std::vector<std::string> replicas(const char *axis, int tp, int pp) {
  std::vector<std::string> sets = axes(tp, pp);
  sets.back() = fmt::format("cluster=cpu_local:1x{}", 2 * tp * pp);
  for (std::string word : {"parallel.parallel_mode=1", "runner_config.batch_size=2", "parallel_config.data_parallel=2"})
    sets.push_back(word);
  sets.push_back(fmt::format("parallel_config.{}=2", axis));
  return sets;
}

/// A batch whose products read packed weights; see runtime/device/cpu/packed_weights.h.
std::vector<std::string> eight(int tp) {
  std::vector<std::string> sets = axes(tp, 1);
  sets.push_back("runner_config.batch_size=8");
  return sets;
}

std::string nameOf(const testing::TestParamInfo<Generation::ParamType> &info) {
  return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Splits, Generation,
                         testing::Combine(testing::Values("gpt2", "llama", "llama_tied", "mixtral", "qwen3_moe"),
                                          testing::Values(Split{"one", axes(1, 1)}, Split{"tp2", axes(2, 1)},
                                                          Split{"pp2", axes(1, 2)}, Split{"tp2pp2", axes(2, 2)},
                                                          Split{"dp2", replicas("data_parallel", 1, 1)},
                                                          Split{"batch8", eight(1)}, Split{"batch8tp2", eight(2)})),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(
    States, Generation,
    testing::Combine(testing::Values("mamba2", "qwen3_next", "qwen3_5", "bamba", "granitemoehybrid",
                                     "granitemoehybrid_dense", "nemotron_h", "nemotron_h_experts"),
                     testing::Values(Split{"one", axes(1, 1)}, Split{"tp2pp2", axes(2, 2)}, Split{"batch8", eight(1)})),
    nameOf);
INSTANTIATE_TEST_SUITE_P(
    KindsOfLlama, Generation,
    testing::Combine(testing::Values("llama_wide", "mistral", "phi3", "qwen2", "qwen3", "llama31", "llama_linear",
                                     "qwen2_yarn", "mistral_window", "phi4_mini", "gpt_neox", "smollm3", "gemma2",
                                     "gemma3", "olmo2", "stablelm", "qwen2_moe", "glm4_moe", "glm4_moe_qk_norm",
                                     "gpt_oss", "deepseek_v3", "deepseek_v3_halves", "deepseek_v3_full_q",
                                     "deepseek_v3_experts", "deepseek_v3_experts_full_q"),
                     testing::Values(Split{"one", axes(1, 1)}, Split{"tp2pp2", axes(2, 2)})),
    nameOf);
INSTANTIATE_TEST_SUITE_P(Options, Generation,
                         testing::Combine(testing::Values("llama_biases", "qwen3_biases", "olmo2_biases",
                                                          "gemma2_biases", "stablelm_biases", "gpt_neox_sequential",
                                                          "gpt_neox_yarn", "mixtral_yarn", "qwen3_moe_biases",
                                                          "qwen2_moe_no_biases", "glm4_moe_no_biases"),
                                          testing::Values(Split{"one", axes(1, 1)}, Split{"tp2pp2", axes(2, 2)})),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Families, Generation,
                         testing::Combine(testing::Values("apertus", "deepseek_v32", "sarvam_moe", "aria_text",
                                                          "qwen3_5_moe", "lfm2_moe"),
                                          testing::Values(Split{"one", axes(1, 1)}, Split{"tp2pp2", axes(2, 2)})),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Positions, Generation,
                         testing::Combine(testing::Values("opt", "gpt_bigcode", "gpt_neo", "bloom", "mpt", "ministral3",
                                                          "nanochat", "llama4_text"),
                                          testing::Values(Split{"one", axes(1, 1)}, Split{"tp2pp2", axes(2, 2)})),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Experts, Generation,
                         testing::Combine(testing::Values("mixtral", "qwen3_moe", "qwen2_moe", "glm4_moe",
                                                          "glm4_moe_qk_norm", "deepseek_v3_experts", "gpt_oss"),
                                          testing::Values(Split{"ep2", replicas("expert_parallel", 1, 1)},
                                                          Split{"ep2tp2pp2", replicas("expert_parallel", 2, 2)})),
                         nameOf);

/// Feeding tokens one by one through the cache gives the same logits as feeding them all at once as another sequence.
TEST(Cache, GivesTheLogitsOfTheWholeText) {
  const Subject &subject = subjectOf("llama");
  Running model(subject, {"one", axes(1, 1)});
  Tokens text = subject.prompts()[1], more = subject.tokens()[1];
  size_t prompt = text.size();
  text.insert(text.end(), more.begin(), more.end());
  text.resize(static_cast<size_t>(model.decoder->sizes().promptTokens)); // the length of one prefill
  rt::Feed first = {0, 0, std::span(text).first(prompt)};
  model.decoder->prefill({&first, 1});
  for (size_t end = prompt + 1; end <= text.size(); ++end) {
    rt::Feed one = {0, static_cast<int64_t>(end) - 1, std::span(text).subspan(end - 1, 1)};
    model.decoder->decode({&one, 1});
    auto cached = model.decoder->logits(0);
    std::vector<float> kept(cached.begin(), cached.end());
    rt::Feed whole = {2, 0, std::span(text).first(end)};
    model.decoder->prefill({&whole, 1});
    auto fresh = model.decoder->logits(2);
    for (size_t i = 0; i < kept.size(); ++i)
      ASSERT_NEAR(kept[i], fresh[i], 1e-4) << "token " << end << ", logit " << i;
  }
}

/// The scores of a prompt and of what follows are those of prefills that end before each token.
TEST(Scores, AreThoseOfPrefills) {
  const Subject &subject = subjectOf("llama");
  Running model(subject, {"one", axes(1, 1)});
  Tokens text = subject.prompts()[1];
  rt::Completion scored;
  rt::Generator generator(*model.decoder, nullptr);
  auto listener = [&](const rt::News &news) {
    if (news.end)
      scored = *news.end;
    return true;
  };
  generator.add({.prompt = text, .maxTokens = 1, .bestTokens = 2, .scoresPrompt = true}, listener);
  while (!generator.isIdle())
    generator.step();
  std::vector<rt::TokenScore> scores = scored.promptScores;
  ASSERT_EQ(scores.size(), text.size() - 1);
  ASSERT_EQ(scored.scores.size(), 1U);
  EXPECT_EQ(scored.tokens, Tokens{subject.tokens()[1][0]});
  scores.push_back(scored.scores[0]);
  text.push_back(scored.tokens[0]);
  for (size_t i = 1; i < text.size(); ++i) {
    rt::TokenScore fresh = rt::scoreToken(model.logitsBehind(Tokens(text.begin(), text.begin() + i)), text[i], 2);
    EXPECT_EQ(scores[i - 1].token, text[i]);
    EXPECT_NEAR(scores[i - 1].logProbability, fresh.logProbability, 1e-4) << "token " << i;
    EXPECT_EQ(scores[i - 1].best[0].first, fresh.best[0].first);
  }
  // Without tokens to generate, the prompt is scored and nothing else is done.
  generator.add({.prompt = text, .maxTokens = 0, .bestTokens = 0, .scoresPrompt = true}, listener);
  generator.step();
  EXPECT_FALSE(generator.isIdle());
  while (!generator.isIdle())
    generator.step();
  EXPECT_EQ(scored.promptScores.size(), text.size() - 1);
  EXPECT_EQ(scored.promptScores.back().logProbability, scores.back().logProbability);
  EXPECT_TRUE(scored.tokens.empty() && scored.scores.empty());
  EXPECT_EQ(scored.finish, rt::Finish::Length);
}

/// Other sequences in a batch do not change any bit of a sequence's logits.
TEST(Cache, KeepsSequencesApart) {
  for (const char *name : {"gpt2", "mixtral"})
    for (const Split &split : {Split{"one", axes(1, 1)}, Split{"batch8", eight(1)}}) {
      const Subject &subject = subjectOf(name);
      Running model(subject, split);
      std::vector<Tokens> prompts = subject.prompts();
      std::vector<Tokens> together = model.greedy(prompts, 8);
      for (size_t i = 0; i < prompts.size(); ++i)
        EXPECT_EQ(model.greedy({prompts[i]}, 8), std::vector<Tokens>{together[i]}) << name << " " << split.name;
      // The third sequence alone, with rows of other texts before and behind it.
      Tokens text = prompts[0];
      model.decoder->prefill(std::array{rt::Feed{0, 0, text}});
      std::vector<float> first(model.decoder->logits(0).begin(), model.decoder->logits(0).end());
      model.decoder->prefill(std::array{rt::Feed{2, 0, text}});
      EXPECT_THAT(model.decoder->logits(2), testing::ElementsAreArray(first)) << name << " " << split.name;
    }
}

/// Plans of eight and of four sequences; four also with weights of 16 bits, whose few rows are not packed.
std::vector<Split> mixingSplits() {
  std::vector<Split> splits;
  for (int tp : {1, 2}) {
    splits.push_back({fmt::format("batch8, tp {}", tp), eight(tp)});
    splits.push_back({fmt::format("batch4, tp {}", tp), axes(tp, 1)});
    Split &half = splits.emplace_back(Split{fmt::format("batch4 in bfloat16, tp {}", tp), axes(tp, 1)});
    for (const char *set : {"model.model_config.compute_dtype=bfloat16", "model.model_config.param_init_type=bfloat16"})
      half.sets.emplace_back(set);
  }
  return splits;
}

/// Prompts that are added while other texts are decoded do not change any bit of a text's scores.
TEST(Generator, AddsPromptsWhileItDecodes) {
  for (const char *name :
       {"gpt2", "llama", "deepseek_v3", "mixtral", "glm4_moe", "deepseek_v3_experts", "mamba2", "nemotron_h_experts"})
    for (const Split &split : mixingSplits()) {
      const Subject &subject = subjectOf(name);
      Running model(subject, split);
      EXPECT_TRUE(model.decoder->mixesPrompts()) << name << " " << split.name;
      std::vector<Tokens> prompts = subject.prompts();
      std::vector<rt::Completion> alone = model.scored(prompts, /*between=*/100);
      for (int64_t between : {0, 1, 3}) {
        std::vector<rt::Completion> together = model.scored(prompts, between);
        for (size_t i = 0; i < prompts.size(); ++i) {
          ASSERT_EQ(together[i].tokens, alone[i].tokens) << name << ", text " << i;
          for (size_t token = 0; token < alone[i].scores.size(); ++token)
            ASSERT_EQ(together[i].scores[token].logProbability, alone[i].scores[token].logProbability)
                << name << ", " << split.name << ", between " << between << ", text " << i << ", token " << token;
        }
      }
    }
}

/// The copies of the layers' matrices replace the stored ones. The head has a copy beside the table, which the
/// embedding reads.
TEST(PackedWeights, ReplaceTheStoredWeights) {
  ImportOptions options;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
  options.sets = axes(1, 1);
  for (const char *set : {"run_mode=predict", "runner_config.batch_size=8", "parallel_config.data_parallel=1",
                          "model.model_config.hidden_size=256"})
    options.sets.emplace_back(set);
  ImportedRun run = importRun(ESPALIER_SOURCE_DIR "/configs/tiny_gpt.yaml", options);
  std::unique_ptr<rt::Program> compiled = programOf(run);
  const rt::Program &program = *compiled;
  const rt::pb::Stage &stage = program.plan().stages(0);
  rt::WeightUses uses(dynamic_cast<const rt::CpuBackend &>(program.backend()), stage);
  constexpr uint64_t layers = 4, matrices = 12 * layers * 256 * 256 * sizeof(float);
  uint64_t freed = 0;
  EXPECT_EQ(uses.weights().size(), 6 * layers + 1); // q, k and v are matrices of their own
  for (const auto &[begin, end] : uses.unread())
    freed += end - begin;
  EXPECT_LE(freed, matrices);
  EXPECT_GT(freed, matrices - (6 * layers + 1) * 2 * 4096); // biases share pages with matrices
  uint64_t largest = uint64_t{4} * 256 * 256 * sizeof(float), head = uint64_t{256} * 256 * sizeof(float);
  EXPECT_LE(uses.addedBytes(), head + largest + (6 * layers + 1) * 2 * 4096);
  EXPECT_GE(uses.addedBytes(), head + largest);
}

TEST(Generator, EndsWithTheContext) {
  const Subject &subject = subjectOf("gpt2");
  Running model(subject, {"one", axes(1, 1)});
  EXPECT_EQ(model.greedy({subject.prompts()[2]}, 1000)[0].size(), static_cast<size_t>(subject.context()) - 70U);
}

TEST(Generator, ReportsRequestsThatItCannotServe) {
  const Subject &subject = subjectOf("gpt2");
  Running model(subject, {"one", axes(1, 1)});
  auto reason = [&](rt::Request request) { return whyNotServed(request, model.decoder->sizes()); };
  EXPECT_EQ(reason({.prompt = {1}}), "");
  EXPECT_EQ(reason({.prompt = {}}), "the prompt has no token");
  EXPECT_EQ(reason({.prompt = Tokens(144, 1)}), "the prompt has 144 tokens; with a context of 144 it may have 143");
  EXPECT_EQ(reason({.prompt = {19}}), "token 19 is outside of the model's vocabulary of 19");
  EXPECT_EQ(reason({.prompt = {1}, .maxTokens = -1}), "max_tokens is -1, needs to be at least 0");
  EXPECT_EQ(reason({.prompt = {1}, .sampling = {.temperature = -1}}), "temperature is -1, needs to be at least 0");
  EXPECT_EQ(reason({.prompt = {1}, .sampling = {.topP = 0}}), "top_p is 0, needs to be above 0 and at most 1");
  EXPECT_EQ(reason({.prompt = {1}, .sampling = {.topK = -1}}), "top_k is -1, needs to be at least 0");
}

TEST(ChooseGeneration, RefusesSplitSequences) {
  ImportedRun run = subjectOf("gpt2").run(
      {"parallel.parallel_mode=1", "parallel_config.context_parallel=2", "cluster=cpu_local:1x2"});
  mlir::MLIRContext context;
  EXPECT_EQ(chooseGeneration(context, run.config).reason,
            "error: run_mode predict does not split sequences: each step of decoding has one new token of a text, and "
            "its cache is not split; context_parallel: 2 → 1");
}

} // namespace
} // namespace espalier
