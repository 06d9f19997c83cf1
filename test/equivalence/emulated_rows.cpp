// The rows of the suite for the emulated device.
#include "test/equivalence/emulated_rows.h"

namespace espalier {
namespace {

constexpr auto none = planner::Recompute::None, selective = planner::Recompute::Selective,
               full = planner::Recompute::Full;

/// Returns the settings of a model with its own head width.
std::vector<std::string> wideHeads() { return {"model.model_config.head_dim=8"}; }

/// Returns the settings of low-rank adapters beside all products of the layers.
std::vector<std::string> adapterSets(double dropout) {
  return {"model.model_config.pet_config={pet_type: lora, lora_rank: 4, lora_alpha: 8, lora_dropout: " +
          std::to_string(dropout) + ", target_modules: '.*(attn|mlp).*'}"};
}

} // namespace

std::vector<std::string> dropoutSets() {
  return {"model.model_config.embedding_dropout_prob=0.1", "model.model_config.hidden_dropout_rate=0.2",
          "model.model_config.attention_dropout_rate=0.1"};
}

std::vector<std::string> storageSets(const std::string &type) {
  return {"model.model_config.param_init_type=" + type, "model.model_config.compute_dtype=" + type,
          "optimizer.master_weights=True"};
}

RunConfig runOf(const EmulatedRow &row) {
  std::vector<std::string> sets = row.sets;
  sets.push_back("model.model_config.hidden_size=32");
  if (row.file == "bloom")
    sets.push_back("model.model_config.num_heads=4"); // its six heads do not divide 32
  return equivalenceRun(row.file, sets);
}

const std::vector<EmulatedRow> &planRows() {
  static const std::vector<EmulatedRow> rows = {
      {"gpt2", "gpt2", {}, {}},
      {"gpt2_accumulate8", "gpt2", {}, {.microBatches = 8}},
      {"gpt2_mixed", "gpt2", {}, {.layerRecompute = {full, none, selective}}},
      {"gpt2_dropout", "gpt2", dropoutSets(), {}},
      {"gpt2_dropout_accumulate2_full", "gpt2", dropoutSets(), {.microBatches = 2, .recompute = full}},
      {"llama", "llama", {}, {}},
      {"llama_selective", "llama", {}, {.microBatches = 4, .recompute = selective}},
      {"llama_options", "llama", optionModels().front().sets, {.microBatches = 2, .recompute = selective}},
      {"llama_documents", "llama", documentSets(), {.microBatches = 2, .recompute = full}},
      {"gemma2", "gemma2", {}, {}},
      {"gpt2_zero_centered", "gpt2", {"model.model_config.layernorm_zero_centered_gamma=True"}, {.microBatches = 2}},
      {"gpt_neox_full", "gpt_neox", {}, {.recompute = full}},
      {"deepseek_v3", "deepseek_v3", {}, {}},
      {"mixtral_accumulate2_full", "mixtral", {}, {.microBatches = 2, .recompute = full}},
      {"qwen2_moe_accumulate2", "qwen2_moe", {}, {.microBatches = 2}},
      {"glm4_moe_accumulate2", "glm4_moe", {}, {.microBatches = 2, .recompute = selective}},
      {"bloom", "bloom", {}, {}},
      {"llama4_accumulate2", "llama4_text", wideHeads(), {.microBatches = 2}},
      {"gpt_oss_selective", "gpt_oss", wideHeads(), {.microBatches = 2, .recompute = selective}},
      {"frozen_accumulate2", "frozen_parts", {}, {.microBatches = 2}},
      {"adapters_full", "llama", adapterSets(0), {.microBatches = 2, .recompute = full}},
      {"adapters_dropout", "gpt2", adapterSets(0.2), {}},
      {"gpt2_sgd", "gpt2", optimizerModels().front().sets, {.microBatches = 2}},
      {"llama_muon", "llama", {"optimizer.type=Muon"}, {.microBatches = 2}},
      {"llama_clip_full", "llama", clipModels().back().sets, {.microBatches = 2, .recompute = full}},
  };
  return rows;
}

const std::vector<EmulatedRow> &splitRows() {
  static const std::vector<EmulatedRow> rows = {
      {"gpt2_tp2", "gpt2", {}, {.tp = 2}},
      {"gpt2_dp2_zero1", "gpt2", {}, {.dp = 2, .microBatches = 2, .zero = 1}},
      {"gpt2_dp2_zero2", "gpt2", {}, {.dp = 2, .microBatches = 2, .zero = 2}},
      {"gpt2_dp4_zero1_group2", "gpt2", {}, {.dp = 4, .microBatches = 2, .zero = 1, .zeroGroup = 2}},
      {"llama_dp4_zero3_group2", "llama", {}, {.dp = 4, .zero = 3, .zeroGroup = 2}},
      {"llama_dp2_tp2_zero3_full", "llama", {}, {.dp = 2, .tp = 2, .microBatches = 2, .zero = 3, .recompute = full}},
      {"gpt2_tp2_sequence", "gpt2", dropoutSets(), {.tp = 2, .sequenceParallel = true}},
      {"llama_dp2_pp2_full", "llama", {}, {.dp = 2, .pp = 2, .microBatches = 2, .recompute = full}},
      {"llama_tp2_pp2_zero1", "llama", {}, {.tp = 2, .pp = 2, .microBatches = 4, .zero = 1}},
      {"adapters_dp2_zero3", "llama", adapterSets(0.1), {.dp = 2, .microBatches = 2, .zero = 3}},
      {"adapters_tp2_pp2_sequence",
       "gpt2",
       adapterSets(0.1),
       {.tp = 2, .pp = 2, .microBatches = 4, .sequenceParallel = true}},
      {"llama_sgd_tp2_zero1", "llama", optimizerModels().front().sets, {.dp = 2, .tp = 2, .zero = 1}},
      {"gpt2_muon_dp2_zero1", "gpt2", {"optimizer.type=Muon"}, {.dp = 2, .microBatches = 2, .zero = 1}},
      {"gpt2_muon_dp2_tp2_zero2_sequence",
       "gpt2",
       {"optimizer.type=Muon"},
       {.dp = 2, .tp = 2, .microBatches = 2, .zero = 2, .sequenceParallel = true}},
      {"gpt2_clip_dp2_tp2_zero2",
       "gpt2",
       clipModels().front().sets,
       {.dp = 2, .tp = 2, .microBatches = 2, .zero = 2, .sequenceParallel = true}},
      {"llama_clip_cp2_zigzag", "llama", clipModels().back().sets, {.cp = 2, .zigzag = true}},
      {"gemma2_tp2_cp2", "gemma2", {}, {.tp = 2, .cp = 2}},
      {"deepseek_v3_tp2_cp2", "deepseek_v3", {}, {.tp = 2, .cp = 2}},
      {"llama_documents_tp2_cp2", "llama", documentSets(), {.tp = 2, .cp = 2}},
      {"gpt2_tp2_cp2_zigzag_sequence",
       "gpt2",
       dropoutSets(),
       {.tp = 2, .cp = 2, .sequenceParallel = true, .zigzag = true}},
      {"bloom_tp2_cp2_zigzag", "bloom", {}, {.tp = 2, .cp = 2, .zigzag = true}},
      {"gemma2_cp2_zigzag", "gemma2", {}, {.cp = 2, .microBatches = 8, .zigzag = true}},
      {"llama_documents_cp2_zigzag", "llama", documentSets(), {.cp = 2, .zigzag = true}},
      {"olmo2_tp2_sequence", "olmo2", {}, {.tp = 2, .sequenceParallel = true}},
      {"mixtral_dp2_ep2_zero1", "mixtral", {}, {.dp = 2, .ep = 2, .microBatches = 2, .zero = 1}},
      {"mixtral_cp2_ep2_over_zero1",
       "mixtral",
       foldedSets(),
       {.cp = 2, .ep = 2, .expertsOverContext = true, .zero = 1, .zigzag = true}},
      {"mixtral_tp2_ep2_whole", "mixtral", {}, {.tp = 2, .ep = 2, .splitsExperts = false, .sequenceParallel = true}},
      {"qwen3_moe_tp2_ep2", "qwen3_moe", wideHeads(), {.tp = 2, .ep = 2, .sequenceParallel = true}},
      {"gpt_oss_tp2_ep2_whole",
       "gpt_oss",
       wideHeads(),
       {.tp = 2, .ep = 2, .splitsExperts = false, .sequenceParallel = true}},
      {"qwen2_moe_tp2_ep2", "qwen2_moe", {}, {.tp = 2, .ep = 2, .sequenceParallel = true}},
      {"glm4_moe_dp2_ep2_zero1", "glm4_moe", {}, {.dp = 2, .ep = 2, .microBatches = 2, .zero = 1}},
      {"glm4_moe_tp2_pp2", "glm4_moe", {}, {.tp = 2, .pp = 2, .microBatches = 2}},
      {"qwen3_moe_pp2", "qwen3_moe", wideHeads(), {.pp = 2, .microBatches = 2, .recompute = selective}},
  };
  return rows;
}

std::vector<EmulatedRow> allRows() {
  std::vector<EmulatedRow> rows;
  auto add = [&](const std::vector<Model> &list, const std::vector<SplitCase> &of) {
    for (const Model &model : list)
      for (const SplitCase &split : of)
        rows.push_back({model.name + "_" + split.name, model.file, model.sets, split});
  };
  add(deepModels(), chunkSplits());
  for (const Model &model : models())
    for (const auto *list : {&splits(), &contextSplits(), &shareSplits(), &hybridSplits()})
      add({model}, *list);
  add(optionModels(), optionSplits());
  add({{"two_widths", "two_widths", {}}}, unlikeSplits());
  add({{"two_tables", "two_tables", {}}}, tiedSplits());
  add(frozenModels(), frozenSplits());
  add({{"mixtral", "mixtral", {}},
       {"qwen3_moe", "qwen3_moe", wideHeads()},
       {"qwen2_moe", "qwen2_moe", {}},
       {"glm4_moe", "glm4_moe", {}}},
      expertSplits());
  add({optimizerModels().back()}, sliceSplits());
  add(clipModels(), clipSplits());
  return rows;
}

} // namespace espalier
