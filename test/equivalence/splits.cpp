// The plans of the suite.
#include "test/equivalence/splits.h"

namespace espalier {
namespace {

constexpr auto none = planner::Recompute::None, selective = planner::Recompute::Selective,
               full = planner::Recompute::Full;

} // namespace

const std::vector<SplitCase> &splits() {
  using planner::Schedule;
  static const std::vector<SplitCase> cases = {
      {.name = "accumulate2", .microBatches = 2},
      {.name = "accumulate8", .microBatches = 8},
      {.name = "selective", .recompute = selective},
      {.name = "full", .microBatches = 2, .recompute = full},
      {.name = "dp2", .dp = 2},
      {.name = "dp4_accumulate2", .dp = 4, .microBatches = 2},
      {.name = "dp8", .dp = 8},
      {.name = "dp2_zero1", .dp = 2, .zero = 1},
      {.name = "dp4_zero1_accumulate2", .dp = 4, .microBatches = 2, .zero = 1},
      {.name = "tp2", .tp = 2},
      {.name = "tp2_full", .tp = 2, .recompute = full},
      {.name = "tp2_full_keep", .tp = 2, .recompute = full, .keepCollectives = true},
      {.name = "tp2_full_slice", .tp = 2, .recompute = full, .sliceInputs = true},
      {.name = "tp2_pp2_full_slice",
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .recompute = full,
       .keepCollectives = true,
       .sliceInputs = true},
      {.name = "mixed_recompute", .microBatches = 2, .layerRecompute = {full, none, selective}},
      {.name = "tp2_pp2_mixed_recompute_slice",
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .sliceInputs = true,
       .layerRecompute = {none, selective, full}},
      {.name = "tp2_selective", .tp = 2, .recompute = selective},
      {.name = "tp2_whole_vocab", .tp = 2, .vocabParallel = false},
      {.name = "tp2_sp", .tp = 2, .sequenceParallel = true},
      {.name = "tp2_sp_whole_vocab", .tp = 2, .sequenceParallel = true, .vocabParallel = false},
      {.name = "tp2_sp_full", .tp = 2, .microBatches = 4, .sequenceParallel = true, .recompute = full},
      {.name = "tp2_sp_selective", .tp = 2, .sequenceParallel = true, .recompute = selective},
      {.name = "dp2_tp2", .dp = 2, .tp = 2},
      {.name = "dp2_tp2_zero1", .dp = 2, .tp = 2, .microBatches = 2, .zero = 1},
      {.name = "dp2_tp2_sp_zero1", .dp = 2, .tp = 2, .microBatches = 2, .zero = 1, .sequenceParallel = true},
      {.name = "dp4_tp2_sp", .dp = 4, .tp = 2, .sequenceParallel = true},
      {.name = "pp2_uneven", .pp = 2, .microBatches = 4, .stageLayers = {1, 2}},
      {.name = "pp2_uneven_other", .pp = 2, .microBatches = 2, .stageLayers = {2, 1}},
      {.name = "pp3", .pp = 3, .microBatches = 4},
      {.name = "pp2_gpipe", .pp = 2, .microBatches = 4, .schedule = Schedule::GPipe},
      {.name = "pp3_full", .pp = 3, .microBatches = 8, .recompute = full},
      {.name = "pp2_empty_stage", .pp = 2, .microBatches = 4, .stageLayers = {3, 0}},
      {.name = "dp2_pp2", .dp = 2, .pp = 2, .microBatches = 2},
      {.name = "dp2_pp2_zero1", .dp = 2, .pp = 2, .microBatches = 4, .zero = 1},
      {.name = "dp2_pp3_zero1_selective", .dp = 2, .pp = 3, .microBatches = 4, .zero = 1, .recompute = selective},
      {.name = "tp2_pp2", .tp = 2, .pp = 2, .microBatches = 4},
      {.name = "tp2_pp3_sp", .tp = 2, .pp = 3, .microBatches = 4, .sequenceParallel = true},
      {.name = "dp2_tp2_pp2", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2},
      {.name = "dp2_tp2_pp2_zero1_sp_full",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 1,
       .sequenceParallel = true,
       .recompute = full},
      {.name = "dp2_tp2_pp2_zero1_selective",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 2,
       .zero = 1,
       .recompute = selective},
  };
  return cases;
}

const std::vector<SplitCase> &chunkSplits() {
  constexpr auto interleaved = planner::Schedule::Interleaved;
  static const std::vector<SplitCase> cases = {
      {.name = "pp2_chunks2", .pp = 2, .microBatches = 4, .schedule = interleaved, .virtualStages = 2},
      {.name = "pp2_chunks3_uneven",
       .pp = 2,
       .microBatches = 8,
       .stageLayers = {0, 2, 1, 1, 3, 0},
       .schedule = interleaved,
       .virtualStages = 3},
      {.name = "pp4_chunks2_mixed_recompute",
       .pp = 4,
       .microBatches = 8,
       .schedule = interleaved,
       .virtualStages = 2,
       .layerRecompute = {none, full, selective, none, full, full, selective}},
      {.name = "tp2_pp2_chunks2_full_slice",
       .tp = 2,
       .pp = 2,
       .microBatches = 2,
       .recompute = full,
       .schedule = interleaved,
       .virtualStages = 2,
       .sliceInputs = true},
      {.name = "pp2_zero_bubble_h1_selective",
       .pp = 2,
       .microBatches = 4,
       .recompute = selective,
       .schedule = planner::Schedule::ZeroBubbleH1},
      {.name = "pp2_zero_bubble_v", .pp = 2, .microBatches = 4, .schedule = planner::Schedule::ZeroBubbleV},
      {.name = "pp4_zero_bubble_v_mixed_recompute",
       .pp = 4,
       .microBatches = 8,
       .schedule = planner::Schedule::ZeroBubbleV,
       .layerRecompute = {none, full, selective, none, full, full, selective}},
      {.name = "tp2_pp2_v_half_full_slice",
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .recompute = full,
       .schedule = planner::Schedule::VHalf,
       .sliceInputs = true},
      {.name = "dp2_tp2_pp2_v_min_zero1",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 1,
       .sequenceParallel = true,
       .schedule = planner::Schedule::VMin},
      {.name = "dp2_tp2_pp2_chunks3_zero1",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 1,
       .sequenceParallel = true,
       .recompute = selective,
       .schedule = interleaved,
       .virtualStages = 3},
      {.name = "dp2_pp2_chunks2_zero3",
       .dp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 3,
       .schedule = interleaved,
       .virtualStages = 2},
      {.name = "dp4_pp2_chunks2_zero3_group2",
       .dp = 4,
       .pp = 2,
       .microBatches = 2,
       .zero = 3,
       .zeroGroup = 2,
       .schedule = interleaved,
       .virtualStages = 2},
  };
  return cases;
}

const std::vector<Model> &deepModels() {
  const std::string layers = "model.model_config.num_layers=7";
  static const std::vector<Model> list = {
      {"gpt2_deep",
       "gpt2",
       {layers, "model.model_config.embedding_dropout_prob=0.1", "model.model_config.attention_dropout_rate=0.1"}},
      {"llama_deep", "llama", {layers}},
  };
  return list;
}

const std::vector<SplitCase> &contextSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "cp2", .cp = 2},
      {.name = "cp4_accumulate2", .cp = 4, .microBatches = 2},
      {.name = "cp2_full", .cp = 2, .microBatches = 2, .recompute = full},
      {.name = "cp2_selective", .cp = 2, .recompute = selective},
      {.name = "cp2_zero1", .cp = 2, .zero = 1},
      {.name = "dp2_cp2", .dp = 2, .cp = 2},
      {.name = "dp2_cp2_zero1", .dp = 2, .cp = 2, .microBatches = 2, .zero = 1},
      {.name = "tp2_cp2", .tp = 2, .cp = 2},
      {.name = "tp2_cp2_whole_vocab", .tp = 2, .cp = 2, .vocabParallel = false},
      {.name = "tp2_cp2_sp", .tp = 2, .cp = 2, .sequenceParallel = true},
      {.name = "tp2_cp4_sp_whole_vocab", .tp = 2, .cp = 4, .sequenceParallel = true, .vocabParallel = false},
      {.name = "tp2_cp2_full_slice", .tp = 2, .cp = 2, .recompute = full, .sliceInputs = true},
      {.name = "tp2_cp2_sp_mixed_recompute",
       .tp = 2,
       .cp = 2,
       .microBatches = 2,
       .sequenceParallel = true,
       .layerRecompute = {full, none, selective}},
      {.name = "cp2_zigzag", .cp = 2, .zigzag = true},
      {.name = "cp4_zigzag_accumulate8", .cp = 4, .microBatches = 8, .zigzag = true},
      {.name = "tp2_cp2_zigzag_full_slice", .tp = 2, .cp = 2, .recompute = full, .sliceInputs = true, .zigzag = true},
      {.name = "tp2_cp2_zigzag_sp", .tp = 2, .cp = 2, .sequenceParallel = true, .zigzag = true},
      {.name = "pp2_cp2_zigzag_selective", .pp = 2, .cp = 2, .microBatches = 4, .recompute = selective, .zigzag = true},
      {.name = "dp2_cp2_zigzag_zero3", .dp = 2, .cp = 2, .microBatches = 2, .zero = 3, .zigzag = true},
      {.name = "pp2_cp2", .pp = 2, .cp = 2, .microBatches = 4},
      {.name = "pp3_cp2_zero1_selective", .pp = 3, .cp = 2, .microBatches = 4, .zero = 1, .recompute = selective},
      {.name = "dp2_tp2_cp2_zero1_sp_full",
       .dp = 2,
       .tp = 2,
       .cp = 2,
       .microBatches = 2,
       .zero = 1,
       .sequenceParallel = true,
       .recompute = full},
      {.name = "tp2_pp2_cp2_zero1_sp",
       .tp = 2,
       .pp = 2,
       .cp = 2,
       .microBatches = 4,
       .zero = 1,
       .sequenceParallel = true},
  };
  return cases;
}

const std::vector<SplitCase> &shareSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "dp2_zero2", .dp = 2, .microBatches = 2, .zero = 2},
      {.name = "dp4_zero2_full", .dp = 4, .microBatches = 2, .zero = 2, .recompute = full},
      {.name = "dp4_zero3", .dp = 4, .zero = 3},
      {.name = "dp2_zero3", .dp = 2, .microBatches = 4, .zero = 3},
      {.name = "dp2_zero3_full", .dp = 2, .microBatches = 2, .zero = 3, .recompute = full},
      {.name = "dp2_tp2_sp_zero2", .dp = 2, .tp = 2, .microBatches = 2, .zero = 2, .sequenceParallel = true},
      {.name = "dp2_tp2_sp_zero3", .dp = 2, .tp = 2, .microBatches = 2, .zero = 3, .sequenceParallel = true},
      {.name = "dp2_pp2_zero2", .dp = 2, .pp = 2, .microBatches = 4, .zero = 2},
      {.name = "dp2_pp2_zero3", .dp = 2, .pp = 2, .microBatches = 4, .zero = 3},
      {.name = "dp2_pp3_gpipe_zero3_mixed_recompute",
       .dp = 2,
       .pp = 3,
       .microBatches = 4,
       .zero = 3,
       .schedule = planner::Schedule::GPipe,
       .layerRecompute = {full, none, selective}},
      {.name = "cp2_zero3", .cp = 2, .microBatches = 2, .zero = 3},
      {.name = "dp2_tp2_pp2_zero3_sp_selective",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 3,
       .sequenceParallel = true,
       .recompute = selective},
  };
  return cases;
}

const std::vector<SplitCase> &hybridSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "dp4_zero1_group2", .dp = 4, .zero = 1, .zeroGroup = 2},
      {.name = "dp4_zero1_group1", .dp = 4, .zero = 1, .zeroGroup = 1},
      {.name = "dp8_zero1_group4", .dp = 8, .zero = 1, .zeroGroup = 4},
      {.name = "dp4_zero2_group2", .dp = 4, .microBatches = 2, .zero = 2, .zeroGroup = 2},
      {.name = "dp4_zero3_group2_full", .dp = 4, .microBatches = 2, .zero = 3, .zeroGroup = 2, .recompute = full},
      {.name = "dp4_tp2_sp_zero1_group2",
       .dp = 4,
       .tp = 2,
       .microBatches = 2,
       .zero = 1,
       .zeroGroup = 2,
       .sequenceParallel = true},
      {.name = "dp4_tp2_sp_zero3_group2",
       .dp = 4,
       .tp = 2,
       .microBatches = 2,
       .zero = 3,
       .zeroGroup = 2,
       .sequenceParallel = true},
      {.name = "dp4_cp2_zero1_group2", .dp = 4, .cp = 2, .zero = 1, .zeroGroup = 2},
      {.name = "dp2_cp2_zero2_group1", .dp = 2, .cp = 2, .microBatches = 2, .zero = 2, .zeroGroup = 1},
      {.name = "dp4_pp2_zero1_group2", .dp = 4, .pp = 2, .microBatches = 2, .zero = 1, .zeroGroup = 2},
      {.name = "dp4_pp2_zero2_group2", .dp = 4, .pp = 2, .microBatches = 2, .zero = 2, .zeroGroup = 2},
  };
  return cases;
}

const std::vector<SplitCase> &unlikeSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "accumulate2", .microBatches = 2},
      {.name = "tp2", .tp = 2},
      {.name = "tp4_full", .tp = 4, .recompute = full},
      {.name = "tp2_sp", .tp = 2, .sequenceParallel = true},
      {.name = "dp2_tp2_zero1", .dp = 2, .tp = 2, .microBatches = 2, .zero = 1},
      {.name = "dp2_zero3", .dp = 2, .microBatches = 2, .zero = 3},
      {.name = "tp2_pp2_uneven", .tp = 2, .pp = 2, .microBatches = 4, .stageLayers = {3, 1}},
      {.name = "tp2_cp2", .tp = 2, .cp = 2},
      {.name = "tp2_cp2_zigzag", .tp = 2, .cp = 2, .zigzag = true},
  };
  return cases;
}

const std::vector<SplitCase> &tiedSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "accumulate2", .microBatches = 2},
      {.name = "pp2", .pp = 2, .microBatches = 4},
      {.name = "dp2_tp2_pp2_zero1", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 1},
      {.name = "dp2_zero3", .dp = 2, .zero = 3},
      {.name = "dp4_pp2_zero1_group2", .dp = 4, .pp = 2, .microBatches = 2, .zero = 1, .zeroGroup = 2},
  };
  return cases;
}

const std::vector<Model> &frozenModels() {
  static const std::vector<Model> list = {
      {"frozen_ends", "frozen_parts", {}},
      {"frozen_blocks", "frozen_parts", {"model.model_config.trains_ends=true"}},
      {"llama_adapters",
       "llama",
       {"model.model_config.pet_config={pet_type: lora, lora_rank: 4, lora_alpha: 8, lora_dropout: 0, "
        "target_modules: '.*wq|.*wv|.*wo|.*w2|.*lm_head'}"}},
      {"gpt2_adapters_dropout",
       "gpt2",
       {"model.model_config.pet_config={pet_type: lora, lora_rank: 2, lora_alpha: 2, lora_dropout: 0.2, "
        "target_modules: [c_attn, c_proj, mapping]}"}},
  };
  return list;
}

const std::vector<SplitCase> &frozenSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "accumulate2", .microBatches = 2},
      {.name = "full", .microBatches = 2, .recompute = full},
      {.name = "dp2", .dp = 2},
      {.name = "dp2_zero1", .dp = 2, .microBatches = 2, .zero = 1},
      {.name = "dp2_zero2", .dp = 2, .microBatches = 2, .zero = 2},
      {.name = "dp4_zero3", .dp = 4, .microBatches = 2, .zero = 3},
      {.name = "dp4_zero3_group2", .dp = 4, .microBatches = 2, .zero = 3, .zeroGroup = 2},
      {.name = "dp2_zero3_full", .dp = 2, .microBatches = 2, .zero = 3, .recompute = full},
      {.name = "tp2", .tp = 2},
      {.name = "tp2_sp", .tp = 2, .microBatches = 2, .sequenceParallel = true},
      {.name = "tp2_sp_selective", .tp = 2, .sequenceParallel = true, .recompute = selective},
      {.name = "pp2", .pp = 2, .microBatches = 4},
      {.name = "cp2_zero3", .cp = 2, .microBatches = 2, .zero = 3},
      {.name = "pp2_zero_bubble_v", .pp = 2, .microBatches = 4, .schedule = planner::Schedule::ZeroBubbleV},
      {.name = "dp2_tp2_pp2_zero1_sp",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 1,
       .sequenceParallel = true},
      {.name = "dp2_tp2_pp2_zero3_sp_selective",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 3,
       .sequenceParallel = true,
       .recompute = selective},
  };
  return cases;
}

std::vector<std::string> documentSets() {
  return {"train_dataset.data_loader.config={eod: 32, eod_mask_loss: True, reset_position_ids: True, "
          "reset_attention_mask: True}"};
}

const std::vector<Model> &optionModels() {
  static const std::vector<Model> list = {
      {"llama_options",
       "llama",
       {"model.model_config.theta=100", "model.model_config.extend_method=LLAMA3",
        "model.model_config.scaling_factor=4", "model.model_config.original_max_position=16",
        "model.model_config.rotary_pct=0.5", "model.model_config.sliding_window=3"}},
      {"gemma2", "gemma2", {}},
      {"gpt2_zero_centered", "gpt2", {"model.model_config.layernorm_zero_centered_gamma=True"}},
      {"olmo2", "olmo2", {}},
      {"gpt_neox", "gpt_neox", {}},
      {"deepseek_v3", "deepseek_v3", {}},
      {"llama_documents", "llama", documentSets()},
      {"bloom", "bloom", {}},
      {"bloom_documents", "bloom", documentSets()},
      {"apertus", "apertus", {}},
      {"deepseek_v32", "deepseek_v32", {}},
  };
  return list;
}

const std::vector<SplitCase> &optionSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "tp2", .tp = 2},
      {.name = "tp2_sp_full", .tp = 2, .microBatches = 2, .sequenceParallel = true, .recompute = full},
      {.name = "cp2", .cp = 2},
      {.name = "cp4_selective", .cp = 4, .recompute = selective},
      {.name = "tp2_cp4_zigzag_sp", .tp = 2, .cp = 4, .sequenceParallel = true, .zigzag = true},
      {.name = "pp3_zero1", .pp = 3, .microBatches = 4, .zero = 1},
      {.name = "dp2_tp2_cp2_zero3_sp",
       .dp = 2,
       .tp = 2,
       .cp = 2,
       .microBatches = 2,
       .zero = 3,
       .sequenceParallel = true},
  };
  return cases;
}

const std::vector<Model> &stateModels() {
  static const std::vector<Model> list = {
      {"mamba2", "mamba2", {}},
      {"qwen3_next", "qwen3_next", {}},
      {"mamba2_documents", "mamba2", documentSets()},
      {"qwen3_next_documents", "qwen3_next", documentSets()},
  };
  return list;
}

const std::vector<Model> &furtherModels() {
  static const std::vector<std::string> modules = {"model.model_config.mtp_num_layers=2"};
  static const std::vector<Model> list = [] {
    std::vector<std::string> documents = documentSets();
    documents.insert(documents.end(), modules.begin(), modules.end());
    return std::vector<Model>{{"llama_further", "llama", modules},
                              {"llama_further_documents", "llama", documents},
                              {"gemma2_further", "gemma2", modules},
                              {"deepseek_v3_further", "deepseek_v3_experts", modules}};
  }();
  return list;
}

const std::vector<SplitCase> &stateSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "accumulate2_full", .microBatches = 2, .recompute = full},
      {.name = "selective", .recompute = selective},
      {.name = "dp2_zero1", .dp = 2, .zero = 1},
      {.name = "tp2", .tp = 2},
      {.name = "tp2_sp_full", .tp = 2, .microBatches = 2, .sequenceParallel = true, .recompute = full},
      {.name = "pp2", .pp = 2, .microBatches = 4},
      {.name = "dp2_zero2", .dp = 2, .microBatches = 2, .zero = 2},
      {.name = "dp2_tp2_pp2_zero3_sp_selective",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 3,
       .sequenceParallel = true,
       .recompute = selective},
  };
  return cases;
}

const std::vector<Model> &optimizerModels() {
  static const std::vector<Model> list = {
      {"llama_sgd", "llama", {"optimizer.type=SGD", "optimizer.momentum=0.9", "lr_schedule.learning_rate=0.1"}},
      {"gpt2_muon", "gpt2", {"optimizer.type=Muon"}},
  };
  return list;
}

const std::vector<Model> &clipModels() {
  static const std::vector<Model> list = {
      {"gpt2_clip",
       "gpt2",
       {"optimizer.type=Muon", "model.model_config.hidden_size=32", "optimizer.qk_clip_threshold=0.3"}},
      {"llama_clip", "llama", {"optimizer.qk_clip_threshold=0.1", "optimizer.qk_clip_alpha=0.3"}},
  };
  return list;
}

const std::vector<SplitCase> &clipSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "accumulate4_full", .microBatches = 4, .recompute = full},
      {.name = "dp4", .dp = 4},
      {.name = "dp4_zero1_group2", .dp = 4, .zero = 1, .zeroGroup = 2},
      {.name = "dp2_zero2_selective", .dp = 2, .microBatches = 2, .zero = 2, .recompute = selective},
      {.name = "dp2_zero3_full", .dp = 2, .microBatches = 2, .zero = 3, .recompute = full},
      {.name = "tp2_sp", .tp = 2, .microBatches = 2, .sequenceParallel = true},
      {.name = "cp2_zero1", .cp = 2, .microBatches = 2, .zero = 1},
      {.name = "cp2_zigzag", .cp = 2, .zigzag = true},
      {.name = "dp2_pp2_zero1", .dp = 2, .pp = 2, .microBatches = 4, .zero = 1},
      {.name = "dp2_tp2_cp2_zero2_sp",
       .dp = 2,
       .tp = 2,
       .cp = 2,
       .microBatches = 2,
       .zero = 2,
       .sequenceParallel = true},
  };
  return cases;
}

const std::vector<SplitCase> &matrixSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "accumulate2_full", .microBatches = 2, .recompute = full},
      {.name = "dp4", .dp = 4},
      {.name = "dp2_zero1", .dp = 2, .microBatches = 2, .zero = 1},
      {.name = "dp4_zero1", .dp = 4, .zero = 1},
      {.name = "dp4_zero1_group2", .dp = 4, .zero = 1, .zeroGroup = 2},
      {.name = "dp2_pp2_zero1", .dp = 2, .pp = 2, .microBatches = 4, .zero = 1},
      {.name = "dp2_zero2", .dp = 2, .microBatches = 2, .zero = 2},
      {.name = "dp2_zero3_full", .dp = 2, .microBatches = 2, .zero = 3, .recompute = full},
      {.name = "pp3_selective", .pp = 3, .microBatches = 4, .recompute = selective},
      {.name = "cp2_zero1", .cp = 2, .microBatches = 2, .zero = 1},
  };
  return cases;
}

const std::vector<SplitCase> &sliceSplits() {
  static const std::vector<SplitCase> cases = {
      {.name = "tp2", .tp = 2},
      {.name = "tp2_sp_accumulate2_full", .tp = 2, .microBatches = 2, .sequenceParallel = true, .recompute = full},
      {.name = "dp2_tp2_zero1", .dp = 2, .tp = 2, .microBatches = 2, .zero = 1},
      {.name = "dp2_tp2_zero2_sp", .dp = 2, .tp = 2, .microBatches = 2, .zero = 2, .sequenceParallel = true},
      {.name = "dp2_tp2_zero3", .dp = 2, .tp = 2, .microBatches = 2, .zero = 3},
      {.name = "dp2_tp2_pp2_zero1_sp",
       .dp = 2,
       .tp = 2,
       .pp = 2,
       .microBatches = 4,
       .zero = 1,
       .sequenceParallel = true},
      {.name = "tp2_pp3", .tp = 2, .pp = 3, .microBatches = 4},
      {.name = "tp2_cp2", .tp = 2, .cp = 2},
  };
  return cases;
}

const std::vector<Model> &models() {
  static const std::vector<Model> list = {
      {"gpt2", "gpt2", {}},
      {"gpt2_dropout",
       "gpt2",
       {"model.model_config.embedding_dropout_prob=0.1", "model.model_config.hidden_dropout_rate=0.2",
        "model.model_config.attention_dropout_rate=0.1"}},
      {"llama", "llama", {}},
  };
  return list;
}

} // namespace espalier
