// Tests pet_config: which products get adapters, what is frozen, the names of the adapters in files, and errors.
#include "compiler/import/run/import_run.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

ImportedRun run(const std::string &name, const std::string &settings) {
  ImportOptions options;
  if (!settings.empty())
    options.sets = {"model.model_config.pet_config={" + settings + "}"};
  return importRun(ESPALIER_SOURCE_DIR "/configs/" + name + ".yaml", options);
}

std::vector<std::string> adaptersOf(const ImportedRun &run) {
  std::vector<std::string> names;
  for (const SegmentDescription &segment : run.config.model.segments)
    for (const ParameterDescription &parameter : segment.parameters)
      if (parameter.isAdapter)
        names.push_back(segment.kind + "." + parameter.name);
  return names;
}

std::string errorOf(const std::string &name, const std::string &settings) {
  ImportedRun imported = run(name, settings);
  EXPECT_FALSE(imported.ok());
  EXPECT_EQ(imported.diagnostics.sorted().size(), 1u) << imported.diagnostics.render();
  return imported.diagnostics.render();
}

const ParameterDescription &parameter(const ImportedRun &run, const std::string &name) {
  const auto &parameters = run.config.model.segment("block").parameters;
  return *std::ranges::find(parameters, name, &ParameterDescription::name);
}

std::vector<std::pair<std::string, std::string>> peftNames(const ImportedRun &run) {
  auto rules = std::ranges::find(run.config.weights, "peft", &WeightRules::system);
  return rules == run.config.weights.end() ? std::vector<std::pair<std::string, std::string>>() : rules->rules;
}

TEST(Adapters, LieBesideTheSelectedProducts) {
  ImportedRun lora = run("llama2_7b", "pet_type: lora, lora_rank: 16, lora_alpha: 32, target_modules: '.*wq|.*wo'");
  ASSERT_TRUE(lora.ok()) << lora.diagnostics.render();
  EXPECT_THAT(adaptersOf(lora), ElementsAre("block.attn_q_weight_lora_a", "block.attn_q_weight_lora_b",
                                            "block.attn_o_weight_lora_a", "block.attn_o_weight_lora_b"));
  const ParameterDescription &a = parameter(lora, "attn_q_weight_lora_a"), &b = parameter(lora, "attn_q_weight_lora_b");
  EXPECT_THAT(a.dims, ElementsAre("hidden", "lora_rank"));
  EXPECT_THAT(b.dims, ElementsAre("lora_rank", "kv_heads", "group", "head_dim"));
  EXPECT_DOUBLE_EQ(a.initializer.stddev, 1 / std::sqrt(3 * 4096.0));
  EXPECT_EQ(b.initializer.kind, rt::pb::Initialization::ZEROS);
  EXPECT_THAT(parameter(lora, "attn_o_weight_lora_a").dims, ElementsAre("kv_heads", "group", "head_dim", "lora_rank"));
  EXPECT_EQ(lora.config.model.dims.at("lora_rank"), 16);
  // Only adapters are trained: two of [4096, 16] and two of [16, 4096] in each of 32 layers.
  EXPECT_EQ(lora.config.model.trainableCount(), 32 * 4 * 4096 * 16);
  EXPECT_EQ(lora.config.model.parameterCount(), 6738415616 + 32 * 4 * 4096 * 16);
}

TEST(Adapters, AreSelectedByNamesOfBothSystems) {
  for (const char *targets : {"'.*wq|.*wv'", "'.*q_proj|.*v_proj'", "[q_proj, v_proj]",
                              "[attention.wq, self_attn.v_proj]", "'model.layers.*\\.(wq|wv)'"})
    EXPECT_THAT(adaptersOf(run("llama2_7b", std::string("pet_type: lora, target_modules: ") + targets)),
                ElementsAre("block.attn_q_weight_lora_a", "block.attn_q_weight_lora_b", "block.attn_v_weight_lora_a",
                            "block.attn_v_weight_lora_b"))
        << targets;
}

/// A module of several parameters has one matrix A. Products that MindFormers separates have a matrix A each.
TEST(Adapters, ShareAWithinAModule) {
  EXPECT_THAT(adaptersOf(run("gpt2_124m", "pet_type: LORA, target_modules: [c_attn]")),
              ElementsAre("block.attn_q_weight_lora_a", "block.attn_q_weight_lora_b", "block.attn_k_weight_lora_b",
                          "block.attn_v_weight_lora_b"));
  EXPECT_THAT(adaptersOf(run("gpt2_124m", "pet_type: lora, target_modules: '.*dense1.*|.*dense3.*'")),
              ElementsAre("block.attn_q_weight_lora_a", "block.attn_q_weight_lora_b", "block.attn_v_weight_lora_a",
                          "block.attn_v_weight_lora_b"));
}

TEST(Adapters, HaveNamesInFilesOfPeft) {
  EXPECT_THAT(peftNames(run("llama2_7b", "pet_type: lora, target_modules: [q_proj, down_proj]")),
              ElementsAre(Pair("base_model.model.model.layers.{i}.self_attn.q_proj.lora_A.weight",
                               "attn_q_weight_lora_a = lora_rank hidden"),
                          Pair("base_model.model.model.layers.{i}.self_attn.q_proj.lora_B.weight",
                               "attn_q_weight_lora_b = (kv_heads group head_dim) lora_rank"),
                          Pair("base_model.model.model.layers.{i}.mlp.down_proj.lora_A.weight",
                               "mlp_down_weight_lora_a = lora_rank ffn"),
                          Pair("base_model.model.model.layers.{i}.mlp.down_proj.lora_B.weight",
                               "mlp_down_weight_lora_b = hidden lora_rank")));
  EXPECT_THAT(peftNames(run("gpt2_124m", "pet_type: lora, target_modules: [c_attn]")),
              ElementsAre(Pair("base_model.model.(transformer.|)h.{i}.attn.c_attn.lora_A.weight",
                               "attn_q_weight_lora_a = lora_rank hidden"),
                          Pair("base_model.model.(transformer.|)h.{i}.attn.c_attn.lora_B.weight",
                               "attn_q_weight_lora_b attn_k_weight_lora_b attn_v_weight_lora_b = (| heads head_dim) "
                               "lora_rank")));
  EXPECT_THAT(peftNames(run("gpt2_124m", "pet_type: lora, target_modules: '.*dense1'")), IsEmpty());
}

/// Patterns are those of Python's re.match, which MindFormers and peft call.
TEST(Adapters, PatternsAreThoseOfPython) {
  const std::string names = "base_model.model.model.layers.{i}.self_attn.q_proj.lora_A.weight";
  for (const char *pattern : {".*wq", "(?i).*WQ", "(?:.*)(?<=w)q", ".*w[q]$"})
    EXPECT_THAT(peftNames(run("llama2_7b", fmt::format("pet_type: lora, target_modules: '{}'", pattern))),
                testing::Contains(Pair(names, testing::_)))
        << pattern;
}

TEST(Adapters, OfExperts) {
  ImportedRun lora = run("qwen3_30b_a3b", "pet_type: lora, lora_dropout: 0, target_modules: [experts.0.up_proj]");
  ASSERT_TRUE(lora.ok()) << lora.diagnostics.render();
  EXPECT_THAT(parameter(lora, "expert_up_weight_lora_a").dims, ElementsAre("expert", "hidden", "lora_rank"));
  EXPECT_THAT(parameter(lora, "expert_up_weight_lora_b").dims, ElementsAre("expert", "lora_rank", "ffn_expert"));
}

TEST(Adapters, ContradictionsAreOneError) {
  EXPECT_THAT(errorOf("qwen3_30b_a3b", "pet_type: lora, target_modules: [experts.0.up_proj]"),
              HasSubstr("expert_up_weight belongs to experts, whose adapters have no dropout: set lora_dropout: 0"));
  const std::string lora = "pet_type: lora, target_modules: '.*wq', ";
  EXPECT_THAT(errorOf("llama2_7b", lora + "lora_rank: 0"), HasSubstr("lora_rank must be a whole number of at least 1"));
  EXPECT_THAT(errorOf("llama2_7b", lora + "lora_alpha: -1"), HasSubstr("lora_alpha must be above 0, got -1"));
  EXPECT_THAT(errorOf("llama2_7b", lora + "lora_dropout: 1"),
              HasSubstr("lora_dropout must be at least 0 and below 1, got 1"));
  EXPECT_THAT(errorOf("llama2_7b", lora + "lora_ranks: 8"), HasSubstr("did you mean 'lora_rank'?"));
  EXPECT_THAT(errorOf("llama2_7b", "pet_type: lora"), HasSubstr("has no target_modules"));
  EXPECT_THAT(errorOf("llama2_7b", "pet_type: lora, target_modules: '.*dense'"),
              HasSubstr("target_modules .*dense selects no matrix product of llama, there are down_proj, "));
  EXPECT_THAT(errorOf("llama2_7b", "pet_type: lora, target_modules: '*wq'"),
              HasSubstr("'*wq' is no regular expression (pattern at character 0: quantifier does not follow"));
  EXPECT_THAT(errorOf("llama2_7b", "pet_type: lora, target_modules: '(x+x+)+y|.*wq|" + std::string(1000, 'x') + "'"),
              HasSubstr("bytes long, at most 1000 are read"));
  EXPECT_THAT(errorOf("llama2_7b", "pet_type: lora, target_modules: '.*layers.1\\..*wq'"),
              HasSubstr("target_modules selects wq in 1 of 32 layers, wanted all or none"));
}

/// An unsupported kind is a warning here and an error when the run file is compiled.
TEST(Adapters, OtherKindsAreRefused) {
  ImportedRun other = run("llama2_7b", "pet_type: ptuning2");
  EXPECT_THAT(other.diagnostics.render(), HasSubstr("warning: pet_type 'ptuning2' is not built, only lora is"));
  EXPECT_THAT(adaptersOf(other), IsEmpty());
}

} // namespace
} // namespace espalier
