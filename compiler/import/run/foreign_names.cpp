#include "compiler/import/run/foreign_names.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace espalier {

namespace {

/// Own keys and the names that others have for them. Keys without a dot are sizes of the model.
const std::vector<std::pair<std::string, std::vector<std::string>>> &table() {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> names = {
      {"parallel_config.data_parallel", {"dp", "data_parallel", "data_parallel_size", "dp_size"}},
      {"parallel_config.model_parallel",
       {"tp", "tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size", "tp_size",
        "model_parallel_size"}},
      {"parallel_config.pipeline_stage",
       {"pp", "pipeline_parallel", "pipeline_parallel_size", "pipeline_model_parallel_size", "pp_size"}},
      {"parallel_config.context_parallel", {"cp", "context_parallel_size", "cp_size", "sequence_parallel_size"}},
      {"parallel_config.expert_parallel", {"ep", "expert_model_parallel_size", "expert_parallel_size", "ep_size"}},
      {"parallel_config.micro_batch_num", {"num_microbatches", "micro_batches", "m"}},
      {"parallel_config.use_seq_parallel", {"sp", "sequence_parallel"}},
      {"planner.pin.virtual_stages", {"vpp", "virtual_pipeline_model_parallel_size", "num_model_chunks"}},
      {"planner.pin.zero", {"zero_stage", "stage", "zero_optimization", "sharding_strategy", "zero"}},
      {"planner.global_batch", {"gbs", "global_batch", "global_batch_size", "train_batch_size", "total_batch_size"}},
      {"runner_config.batch_size",
       {"mbs", "micro_batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu", "batch_size",
        "micro_batch"}},
      {"runner_config.gradient_accumulation_steps",
       {"gradient_accumulation", "grad_accum", "accumulate_grad_batches", "grad_acc_steps"}},
      {"runner_config.epochs", {"num_train_epochs", "num_epochs", "max_epochs"}},
      {"lr_schedule.total_steps",
       {"max_steps", "train_iters", "num_train_steps", "num_training_steps", "max_iters", "train_steps", "steps",
        "lr_decay_iters", "training_steps"}},
      {"lr_schedule.learning_rate", {"lr", "peak_lr", "base_lr", "max_lr"}},
      {"lr_schedule.lr_end", {"min_lr", "end_lr", "eta_min"}},
      {"lr_schedule.type", {"lr_scheduler_type", "lr_decay_style", "scheduler", "lr_scheduler"}},
      {"lr_schedule.warmup_steps", {"num_warmup_steps", "lr_warmup_iters", "warmup", "warmup_iters"}},
      {"lr_schedule.warmup_ratio", {"lr_warmup_fraction"}},
      {"optimizer.type", {"optim", "optimizer_type", "optimizer_name"}},
      {"optimizer.beta1", {"adam_beta1"}},
      {"optimizer.beta2", {"adam_beta2"}},
      {"optimizer.eps", {"adam_epsilon", "adam_eps", "epsilon"}},
      {"optimizer.weight_decay", {"wd"}},
      {"runner_wrapper.max_grad_norm", {"clip_grad", "gradient_clipping", "gradient_clip_val", "grad_clip"}},
      {"recompute_config.recompute",
       {"gradient_checkpointing", "activation_checkpointing", "recompute_granularity", "recompute_activations"}},
      {"load_checkpoint", {"resume_from_checkpoint", "load", "model_name_or_path", "pretrained"}},
      {"seed", {"random_seed", "data_seed"}},
      {"num_layers", {"num_hidden_layers", "n_layer", "n_layers", "depth"}},
      {"hidden_size", {"n_embd", "d_model", "dim", "embed_dim", "embedding_size"}},
      {"num_heads", {"num_attention_heads", "n_head", "n_heads", "heads"}},
      {"n_kv_heads", {"num_key_value_heads", "num_query_groups", "num_kv_heads", "kv_heads"}},
      {"head_dim", {"kv_channels", "head_size", "d_head"}},
      {"intermediate_size", {"ffn_hidden_size", "n_inner", "d_ff", "ffn_dim", "mlp_dim"}},
      {"expand_ratio", {"ffn_hidden_size", "intermediate_size", "n_inner", "d_ff", "ffn_dim"}},
      {"seq_length",
       {"max_seq_length", "max_seq_len", "seq_len", "sequence_length", "block_size", "context_length", "n_ctx",
        "n_positions", "max_length", "max_position_embeddings"}},
      {"vocab_size", {"n_vocab", "padded_vocab_size", "vocabulary_size"}},
      {"theta", {"rope_theta", "rotary_base", "rope_base"}},
      {"rms_norm_eps", {"norm_epsilon", "layernorm_epsilon", "layer_norm_eps", "norm_eps", "layer_norm_epsilon"}},
      {"layernorm_epsilon", {"rms_norm_eps", "norm_epsilon", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"}},
      {"layer_norm_eps", {"rms_norm_eps", "norm_epsilon", "layernorm_epsilon", "layer_norm_epsilon", "norm_eps"}},
      {"hidden_act", {"activation_function", "activation", "hidden_activation"}},
      {"tie_word_embeddings", {"tied_embeddings", "tie_embeddings"}},
      {"hidden_dropout_rate", {"hidden_dropout", "resid_pdrop", "dropout", "hidden_dropout_prob"}},
      {"attention_dropout_rate", {"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"}},
      {"compute_dtype", {"bf16", "fp16", "dtype", "torch_dtype", "precision", "mixed_precision", "fp32"}},
      {"expert_num", {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}},
      {"num_experts_chosen", {"num_experts_per_tok", "moe_router_topk", "top_k", "moe_top_k"}},
      {"sliding_window", {"window_size", "sliding_window_size"}}};
  return names;
}

} // namespace

std::vector<std::string> ownNamesOf(std::string name) {
  for (char &letter : name)
    letter = letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  std::vector<std::string> own;
  for (const auto &[key, others] : table())
    if (std::ranges::find(others, name) != others.end())
      own.push_back(key.find('.') == std::string::npos && key != "seed" && key != "load_checkpoint"
                        ? "model.model_config." + key
                        : key);
  return own;
}

} // namespace espalier
