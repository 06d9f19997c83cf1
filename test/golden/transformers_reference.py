#!/usr/bin/env python3
"""Tiny transformers models for each file of configs/models, with weights from a formula: an oracle for conversions.

    transformers_reference.py                    writes transformers.json and gradients/ beside this file
    transformers_reference.py --add NAME..       adds or replaces the entries of these models
    transformers_reference.py --write DIR NAME   saves the model NAME, in float32
    transformers_reference.py --check DIR NAME   loads DIR and compares its loss with that of NAME in transformers.json
    transformers_reference.py --agrees           finetunes each model, and compares losses with transformers.json and
                                                 gradients with gradients/

Needs torch and transformers. Each entry of transformers.json has a config.json and the mean loss in float64 of the
batch of reference.py (tokens, labels and weights are formulas). Weights are `initial_values` of seed 42 with standard
deviation 0.3, by the name and the shape of the tensor in transformers' file, rounded to float32. `finetune` has the
losses of the first steps of AdamW without decay on the following batches, with all tokens counted. gradients/NAME has
the gradients of the first batch's loss, saved as weights by transformers. The routers' biases have no gradient, and
zeros stand for it. reference.py covers the gradients of gpt2 and llama.
"""
import contextlib
import copy
import json
import pathlib
import sys
import tempfile

import safetensors.torch
import torch
import transformers

from reference import TRAINING, batch_of, initial_values

transformers.utils.logging.disable_progress_bar()
STEPS = 4
SIZES = {"seq": 8, "vocab": 19}
MODELS = {
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 19, "n_positions": 8,
             "n_embd": 24, "n_layer": 2, "n_head": 4, "n_inner": 48, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
             "attn_pdrop": 0.0},
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 19, "hidden_size": 24,
              "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
              "max_position_embeddings": 8, "rms_norm_eps": 1e-5},
    "llama_tied": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 19, "hidden_size": 24,
                   "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
                   "num_key_value_heads": 2, "max_position_embeddings": 8, "rms_norm_eps": 1e-5,
                   "rope_theta": 500000.0, "tie_word_embeddings": True},
}
# Models with heads of width 6 where hidden / heads is 4, and with variants of Llama's block.
GRADED = {
    "llama_wide": MODELS["llama"] | {"head_dim": 6},
    "mistral": MODELS["llama"] | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "head_dim": 6,
                                  "sliding_window": None},
    "phi3": MODELS["llama"] | {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "pad_token_id": None},
    "qwen2": MODELS["llama_tied"] | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": MODELS["llama"] | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 6,
                                "attention_bias": False},
}
# Rotary frequencies that are scaled: of the four pairs of a head the first keeps its frequency, the others turn less.
FOUR_PAIRS = MODELS["llama"] | {"head_dim": 8, "rope_theta": 100.0}
GRADED |= {
    "llama31": FOUR_PAIRS | {"rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                              "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    "llama_linear": FOUR_PAIRS | {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "qwen2_yarn": MODELS["llama"] | {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_attention_heads": 3,
        "num_key_value_heads": 1, "rope_theta": 100.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                         "beta_fast": 4.0, "beta_slow": 1.0}},
    "mistral_window": GRADED["mistral"] | {"sliding_window": 3},
    "phi4_mini": MODELS["llama"] | {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "pad_token_id": None,
                                    "num_attention_heads": 3, "num_key_value_heads": 1, "sliding_window": 5,
                                    "partial_rotary_factor": 0.75},
    "gpt_neox": {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "vocab_size": 19,
                 "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "max_position_embeddings": 8, "rotary_pct": 0.5, "rotary_emb_base": 1000,
                 "use_parallel_residual": True},
    "smollm3": MODELS["llama"] | {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"],
                                  "num_hidden_layers": 5, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0,
                                  "tie_word_embeddings": True},
    "gemma2": MODELS["llama"] | {
        "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": 3, "head_dim": 6,
        "pad_token_id": None,
        "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 3, "query_pre_attn_scalar": 5,
        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 6.0, "tie_word_embeddings": True},
    "gemma3": MODELS["llama"] | {
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 7, "head_dim": 8,
        "pad_token_id": None,
        "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 3, "query_pre_attn_scalar": 24,
        "rope_theta": 1000.0, "rope_local_base_freq": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "tie_word_embeddings": True},
    "olmo2": MODELS["llama"] | {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "rope_theta": 500000.0,
                                "pad_token_id": None},
    "stablelm": {"model_type": "stablelm", "architectures": ["StableLmForCausalLM"], "vocab_size": 19,
                 "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
                 "num_key_value_heads": 1, "max_position_embeddings": 8, "rope_theta": 20.0,
                 "partial_rotary_factor": 0.5},
}
# Multi-head latent attention, here with dense layers only: rotary pairs of neighbours that YaRN scales, and plain halves.
LATENT = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 19, "hidden_size": 24,
          "intermediate_size": 40, "num_hidden_layers": 2, "first_k_dense_replace": 2, "num_attention_heads": 4,
          "num_key_value_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 12, "qk_nope_head_dim": 6,
          "v_head_dim": 10, "max_position_embeddings": 8}
GRADED |= {
    "deepseek_v3": LATENT | {
        "qk_rope_head_dim": 8, "rope_theta": 100.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0,
                         "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.7}},
    "deepseek_v3_halves": LATENT | {"qk_rope_head_dim": 4, "rope_interleave": False},
    "deepseek_v3_full_q": LATENT | {"qk_rope_head_dim": 4, "q_lora_rank": None},
}
# Families of the same parts: other norms, branches side by side, factors, an MLP without a gate.
GRADED |= {
    "gemma": MODELS["llama"] | {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], "head_dim": 6,
                                "pad_token_id": None, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    "granite": MODELS["llama"] | {"model_type": "granite", "architectures": ["GraniteForCausalLM"],
                                  "embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.4,
                                  "logits_scaling": 2.5, "attention_bias": True, "mlp_bias": True},
    "starcoder2": {"model_type": "starcoder2", "architectures": ["Starcoder2ForCausalLM"], "vocab_size": 19,
                   "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
                   "num_key_value_heads": 2, "max_position_embeddings": 8, "sliding_window": 3},
    "phi": {"model_type": "phi", "architectures": ["PhiForCausalLM"], "vocab_size": 19, "hidden_size": 32,
            "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 8,
            "partial_rotary_factor": 0.5},
    "gptj": {"model_type": "gptj", "architectures": ["GPTJForCausalLM"], "vocab_size": 19, "n_embd": 32,
             "n_inner": 40, "n_layer": 2, "n_head": 4, "n_positions": 8, "rotary_dim": 4},
    "glm": MODELS["llama"] | {"model_type": "glm", "architectures": ["GlmForCausalLM"], "head_dim": 8,
                              "partial_rotary_factor": 0.5, "attention_bias": True, "pad_token_id": None},
    "glm4": MODELS["llama"] | {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "head_dim": 8,
                               "partial_rotary_factor": 0.5, "attention_bias": False, "pad_token_id": None},
}
# These models have no load-balancing loss, which transformers adds only if the router's scores are requested.
EXPERTS = {
    "mixtral": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 19, "hidden_size": 24,
                "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
                "max_position_embeddings": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
                "router_aux_loss_coef": 0.0},
    "qwen3_moe": {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 19,
                  "hidden_size": 24, "moe_intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 6,
                  "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 8, "num_experts": 4,
                  "num_experts_per_tok": 2, "norm_topk_prob": True, "router_aux_loss_coef": 0.0},
    # A shared expert, and a dense layer before each layer with experts.
    "qwen2_moe": {"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "vocab_size": 19,
                  "hidden_size": 24, "intermediate_size": 28, "moe_intermediate_size": 12,
                  "shared_expert_intermediate_size": 20, "decoder_sparse_step": 2, "num_hidden_layers": 4,
                  "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 8, "num_experts": 4,
                  "num_experts_per_tok": 2, "norm_topk_prob": False, "router_aux_loss_coef": 0.0},
    # The choice of experts by biased sigmoids within groups, as in DeepSeek-V3.
    "glm4_moe": {"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "vocab_size": 19,
                 "hidden_size": 24, "intermediate_size": 28, "moe_intermediate_size": 12, "num_hidden_layers": 3,
                 "first_k_dense_replace": 1, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
                 "attention_bias": True, "use_qk_norm": False, "partial_rotary_factor": 0.5,
                 "max_position_embeddings": 8, "n_routed_experts": 8, "n_shared_experts": 2, "n_group": 4,
                 "topk_group": 2, "num_experts_per_tok": 3, "norm_topk_prob": True, "routed_scaling_factor": 2.5},
    # GLM-4.5 has norms of q and k, GLM-4.5-Air has not.
    "glm4_moe_qk_norm": {"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "vocab_size": 19,
                         "hidden_size": 24, "intermediate_size": 28, "moe_intermediate_size": 12,
                         "num_hidden_layers": 3, "first_k_dense_replace": 1, "num_attention_heads": 6,
                         "num_key_value_heads": 2, "head_dim": 8, "attention_bias": True, "use_qk_norm": True,
                         "partial_rotary_factor": 0.5, "rope_theta": 1000.0, "max_position_embeddings": 8,
                         "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
                         "num_experts_per_tok": 3, "norm_topk_prob": True, "routed_scaling_factor": 2.5},
    # The same choice behind multi-head latent attention.
    "deepseek_v3_experts": LATENT | {"qk_rope_head_dim": 4, "moe_intermediate_size": 12, "num_hidden_layers": 3,
                                     "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 1,
                                     "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "norm_topk_prob": True,
                                     "routed_scaling_factor": 2.5},
    "deepseek_v3_experts_full_q": LATENT | {"qk_rope_head_dim": 4, "q_lora_rank": None, "moe_intermediate_size": 12,
                                            "num_hidden_layers": 2, "first_k_dense_replace": 1, "n_routed_experts": 4,
                                            "n_shared_experts": 2, "n_group": 1, "topk_group": 1,
                                            "num_experts_per_tok": 2, "norm_topk_prob": False,
                                            "routed_scaling_factor": 1.5},
}
EXPERTS |= {
    "olmoe": {"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "vocab_size": 19, "hidden_size": 24,
              "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
              "max_position_embeddings": 8, "num_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.0,
              "pad_token_id": None},
}
# Further families, with an embedding that trains every row.
TINY = {"vocab_size": 19, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "max_position_embeddings": 8, "pad_token_id": None}
TINY_EXPERTS = {"moe_intermediate_size": 12, "num_experts_per_tok": 2}


def family(kind, architecture, **keys):
    """Returns a tiny config; a key that is "default" is not written."""
    config = {"model_type": kind, "architectures": [architecture]} | TINY | keys
    return {key: value for key, value in config.items() if value != "default"}


FAMILIES = {
    "cohere": family("cohere", "CohereForCausalLM", logit_scale=0.3),
    "seed_oss": family("seed_oss", "SeedOssForCausalLM", head_dim=6, attention_bias=True, attention_out_bias=False,
                       attention_dropout=0.0, residual_dropout=0.0),
    "ernie4_5": family("ernie4_5", "Ernie4_5ForCausalLM", head_dim=6, use_bias=True, tie_word_embeddings=True),
    "falcon": family("falcon", "FalconForCausalLM", num_attention_heads=4, num_key_value_heads="default",
                     intermediate_size="default", ffn_hidden_size=40, multi_query=True, parallel_attn=True, bias=False,
                     alibi=False, new_decoder_architecture=False),
    "olmo3": family("olmo3", "Olmo3ForCausalLM", num_hidden_layers=5, sliding_window=3),
    "deepseek_v2": LATENT | {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"],
                             "qk_rope_head_dim": 4, "moe_intermediate_size": 12, "num_hidden_layers": 3,
                             "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2,
                             "num_experts_per_tok": 3, "norm_topk_prob": False, "routed_scaling_factor": 1.5},
    "arcee": family("arcee", "ArceeForCausalLM", mlp_bias=True),
    "helium": family("helium", "HeliumForCausalLM", head_dim=4, attention_bias=True, mlp_bias=True),
    "jais2": family("jais2", "Jais2ForCausalLM"),
    "nemotron": family("nemotron", "NemotronForCausalLM", head_dim=8, attention_bias=True),
    "olmo": family("olmo", "OlmoForCausalLM", clip_qkv=0.9),
    "vaultgemma": family("vaultgemma", "VaultGemmaForCausalLM", num_hidden_layers=3, head_dim=6, sliding_window=3,
                         query_pre_attn_scalar=5, attn_logit_softcapping=2.0, final_logit_softcapping=6.0),
    "phi_norms": family("phi", "PhiForCausalLM", num_attention_heads=3, num_key_value_heads=1,
                        partial_rotary_factor=0.5, qk_layernorm=True),
    "minicpm3": family("minicpm3", "MiniCPM3ForCausalLM", num_attention_heads=4, num_key_value_heads=4, q_lora_rank=10,
                       kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=10, dim_model_base=8),
    "sarvam_mla": LATENT | {
        "model_type": "sarvam_mla", "q_lora_rank": None, "qk_rope_head_dim": 4, "moe_intermediate_size": 12,
        "first_k_dense_replace": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "mellum": family("mellum", "MellumForCausalLM", head_dim=6, moe_intermediate_size=12, num_experts=4,
                     num_experts_per_tok=2, sliding_window=3, layer_types=["full_attention", "sliding_attention"],
                     router_aux_loss_coef=0.0),
    "internlm3": family("internlm3", "LlamaForCausalLM", head_dim=6, attention_bias=True, mlp_bias=True),
    "iquestcoder": family("iquestcoder", "LlamaForCausalLM", head_dim=6),
    "exaone": family("exaone", "LlamaForCausalLM", attention_bias=True),
    "falcon_grouped": family("falcon", "FalconForCausalLM", num_key_value_heads="default", intermediate_size="default",
                             ffn_hidden_size=40, num_kv_heads=2, new_decoder_architecture=True, bias=False),
    "deepseek_v2_full_q": LATENT | {
        "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "q_lora_rank": None,
        "qk_rope_head_dim": 4, "moe_intermediate_size": 12, "first_k_dense_replace": 1, "n_routed_experts": 4,
        "n_shared_experts": 2, "num_experts_per_tok": 2},
    "olmo_plain": family("olmo", "OlmoForCausalLM"),
    "cohere_norms": family("cohere", "CohereForCausalLM", use_qk_norm=True, attention_bias=True),
    "cohere2": family("cohere2", "Cohere2ForCausalLM", num_hidden_layers=5, sliding_window=3),
    "exaone4": family("exaone4", "Exaone4ForCausalLM", num_hidden_layers=5, sliding_window=3, head_dim=6),
    "cwm": family("cwm", "CwmForCausalLM", num_hidden_layers=5, sliding_window=3, head_dim=6),
    "ministral": family("ministral", "MinistralForCausalLM", num_hidden_layers=3, sliding_window=3, head_dim=6,
                        layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "qwen2_windows": family("qwen2", "Qwen2ForCausalLM", num_hidden_layers=3, use_sliding_window=True,
                            max_window_layers=1, sliding_window=3),
    "stablelm_parallel": family("stablelm", "StableLmForCausalLM", num_attention_heads=3, num_key_value_heads=1,
                                partial_rotary_factor=0.5, use_parallel_residual=True, use_qkv_bias=True),
    "hyperclovax": family("hyperclovax", "HyperCLOVAXForCausalLM", embedding_multiplier=3.0, attention_multiplier=0.3,
                          residual_multiplier=0.4, logits_scaling=0.4),
    "persimmon": family("persimmon", "PersimmonForCausalLM", num_attention_heads=3, num_key_value_heads="default",
                        rope_theta=100.0),
    "youtu": family("youtu", "YoutuForCausalLM", num_attention_heads=4, num_key_value_heads=4, q_lora_rank=10,
                    kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=10),
    "granitemoe": family("granitemoe", "GraniteMoeForCausalLM", num_local_experts=4, router_aux_loss_coef=0.0, embedding_multiplier=3.0,
                         attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5),
    "granitemoeshared": family("granitemoeshared", "GraniteMoeSharedForCausalLM", num_local_experts=4,
                               shared_intermediate_size=10, router_aux_loss_coef=0.0),
    "ernie4_5_moe": family("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", num_hidden_layers=3, moe_intermediate_size=12,
                           moe_num_experts=4, moe_k=2, moe_num_shared_experts=2, moe_layer_start_index=1,
                           tie_word_embeddings=True, router_aux_loss_coef=0.0),
    "dots1": family("dots1", "Dots1ForCausalLM", num_hidden_layers=3, first_k_dense_replace=1, attention_bias=True,
                    moe_intermediate_size=12, n_routed_experts=8, n_shared_experts=2, n_group=4, topk_group=2,
                    num_experts_per_tok=3, norm_topk_prob=True, routed_scaling_factor=2.5),
    "solar_open": family("solar_open", "SolarOpenForCausalLM", intermediate_size="default", head_dim=6,
                         attention_bias=True, moe_intermediate_size=12, n_routed_experts=4, num_experts_per_tok=2),
    "glm4_moe_lite": family("glm4_moe_lite", "Glm4MoeLiteForCausalLM", num_hidden_layers=3, num_attention_heads=4,
                            num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=12, qk_nope_head_dim=6,
                            qk_rope_head_dim=4, v_head_dim=10, moe_intermediate_size=12, n_routed_experts=4,
                            num_experts_per_tok=2, mlp_layer_types=["sparse", "dense", "sparse"]),
    "minimax_m2": family("minimax_m2", "MiniMaxM2ForCausalLM", intermediate_size=12, head_dim=8, num_local_experts=4,
                         num_experts_per_tok=2, partial_rotary_factor=0.5, router_aux_loss_coef=0.0),
    "flex_olmo": family("flex_olmo", "FlexOlmoForCausalLM", intermediate_size=12, num_experts=4, num_experts_per_tok=2,
                        router_aux_loss_coef=0.0),
    "hunyuan_v1_moe": family("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", intermediate_size=12, head_dim=6,
                             num_experts=4, moe_topk=2),
    "qwen3_moe_layers": family("qwen3_moe", "Qwen3MoeForCausalLM", num_hidden_layers=4, head_dim=6,
                               moe_intermediate_size=12, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True,
                               decoder_sparse_step=2, mlp_only_layers=[3], router_aux_loss_coef=0.0),
    "hunyuan_v1_dense": family("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", head_dim=6),
    # Positions by a table, whose first rows stand for padding, and by slopes of heads, here not a power of two.
    "opt": family("opt", "OPTForCausalLM", num_key_value_heads="default", intermediate_size="default", ffn_dim=40,
                  num_attention_heads=4, dropout=0.0),
    "biogpt": family("biogpt", "BioGptForCausalLM", num_key_value_heads="default", num_attention_heads=4,
                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "gpt_bigcode": {"model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "vocab_size": 19,
                    "n_positions": 8, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_inner": 40, "embd_pdrop": 0.0,
                    "resid_pdrop": 0.0, "attn_pdrop": 0.0},
    "gpt_neo": {"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "vocab_size": 19, "hidden_size": 24,
                "num_layers": 4, "num_heads": 4, "intermediate_size": 40, "max_position_embeddings": 8,
                "window_size": 3, "attention_types": [[["global", "local"], 1], [["local"], 2]],
                "attention_layers": ["global", "local", "local", "local"]},
    "bloom": {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "vocab_size": 19, "hidden_size": 24,
              "n_layer": 2, "n_head": 6, "seq_length": 8},
    "mpt": {"model_type": "mpt", "architectures": ["MptForCausalLM"], "vocab_size": 19, "d_model": 24, "n_layers": 2,
            "n_heads": 6, "max_seq_len": 8, "no_bias": True,
            "attn_config": {"alibi": True, "clip_qkv": 0.5, "softmax_scale": 0.3}},
    # Chunks of attention, queries that grow with the position, weights of experts that multiply their inputs.
    "llama4_text": family("llama4_text", "Llama4ForCausalLM", num_hidden_layers=4, head_dim=8, intermediate_size=12,
                          intermediate_size_mlp=28, num_local_experts=4, num_experts_per_tok=2, moe_layers=[1, 3],
                          attention_chunk_size=3, no_rope_layers=[1, 1, 0, 0], floor_scale=2, attn_scale=0.4,
                          router_aux_loss_coef=0.0),
    "ministral3": family("ministral3", "Ministral3ForCausalLM", head_dim=8, rope_parameters={
        "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 3,
        "beta_fast": 8.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}),
    "nanochat": family("nanochat", "NanoChatForCausalLM", final_logit_softcapping=5.0),
    "granite_swa": family("granite_swa", "GraniteSWAForCausalLM", num_hidden_layers=4, sliding_window=3,
                          embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.4,
                          logits_scaling=2.5),
    "granitemoe_swa": family("granitemoe_swa", "GraniteMoeSWAForCausalLM", num_local_experts=4, sliding_window=3,
                             shared_intermediate_size=10, router_aux_loss_coef=0.0),
    "hy_v3": family("hy_v3", "HYV3ForCausalLM", num_hidden_layers=3, head_dim=6, moe_intermediate_size=12,
                    num_experts=4, num_experts_per_tok=2, mlp_layer_types=["sparse", "dense", "sparse"]),
    "exaone_moe": family("exaone_moe", "ExaoneMoeForCausalLM", num_hidden_layers=5, head_dim=6, sliding_window=3,
                         moe_intermediate_size=12, num_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3,
                         mlp_layer_types=["dense", "sparse", "sparse", "sparse", "dense"],
                         layer_types=["sliding_attention", "full_attention", "sliding_attention",
                                      "sliding_attention", "full_attention"]),
    "afmoe": family("afmoe", "AfmoeForCausalLM", num_hidden_layers=4, head_dim=6, sliding_window=3, num_experts=4,
                    num_experts_per_tok=2, moe_intermediate_size=12, num_dense_layers=2, route_scale=1.5,
                    mup_enabled=True),
    "flint": family("flint", "FlintForCausalLM", num_hidden_layers=4, head_dim=6, sliding_window=3, num_experts=4,
                    num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=10,
                    mlp_only_layers=[0, 2], router_aux_loss_coef=0.0,
                    layer_types=["full_attention", "full_attention", "sliding_attention", "sliding_attention"]),
    "dbrx": {"model_type": "dbrx", "architectures": ["DbrxForCausalLM"], "vocab_size": 19, "d_model": 24, "n_layers": 2,
             "n_heads": 6, "max_seq_len": 8, "rope_theta": 100.0,
             "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.5, "rope_theta": 100.0},
             "ffn_config": {"ffn_hidden_size": 12, "moe_num_experts": 4, "moe_top_k": 2, "moe_loss_weight": 0.0}},
    "cohere2_moe": family("cohere2_moe", "Cohere2MoeForCausalLM", num_hidden_layers=5, head_dim=6, sliding_window=3,
                          intermediate_size=12, num_experts=4, num_experts_per_tok=2, logit_scale=0.3,
                          expert_selection_fn="sigmoid"),
    "apertus": family("apertus", "ApertusForCausalLM", rope_parameters={"rope_type": "default", "rope_theta": 100.0}),
    # An indexer that chooses all keys.
    "deepseek_v32": LATENT | {
        "model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"], "qk_rope_head_dim": 4,
        "moe_intermediate_size": 12, "num_hidden_layers": 3, "first_k_dense_replace": 1, "n_routed_experts": 8,
        "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "index_topk": 200, "index_n_heads": 3,
        "index_head_dim": 8},
    "glm_moe_dsa": LATENT | {
        "model_type": "glm_moe_dsa", "architectures": ["GlmMoeDsaForCausalLM"], "qk_rope_head_dim": 4,
        "moe_intermediate_size": 12, "first_k_dense_replace": 1, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "index_topk": 200, "index_n_heads": 3, "index_head_dim": 8},
    "axk1": {key: value for key, value in LATENT.items() if key != "first_k_dense_replace"} | {
        "model_type": "axk1", "architectures": ["AXK1ForCausalLM"], "qk_rope_head_dim": 4, "moe_intermediate_size": 12,
        "num_hidden_layers": 3, "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "mlp_layer_types": ["sparse", "dense", "sparse"]},
    "sarvam_moe": family("sarvam_moe", "Glm4MoeForCausalLM", num_hidden_layers=3, first_k_dense_replace=1, head_dim=6,
                         attention_bias=True, moe_intermediate_size=12, n_routed_experts=4, num_experts_per_tok=2),
    "aria_text": family("aria_text", "AriaTextForCausalLM", intermediate_size=12, moe_num_experts=4, moe_topk=2),
    # Sinks, biases of experts, and bounds that the gates of experts reach.
    "gpt_oss": family("gpt_oss", "GptOssForCausalLM", intermediate_size=12, num_hidden_layers=4, head_dim=8,
                      num_local_experts=4, num_experts_per_tok=2, sliding_window=3, swiglu_limit=0.5,
                      router_aux_loss_coef=0.0,
                      rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 8.0,
                                       "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 64}),
}
# Layers with a state: heads that share keys in groups, and norms of each group.
MIXER = {"mamba_n_heads": 4, "mamba_d_head": 12, "mamba_n_groups": 2, "mamba_d_state": 10, "mamba_d_conv": 3,
         "mamba_chunk_size": 4}
# With a small epsilon, the norms behind delta nets magnify rounding: four steps in float32 are then 7e-5 apart from those
# in float64, in transformers itself; with this one 1e-6.
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
         "linear_value_head_dim": 10, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-3}
STATES = {
    "mamba2": {"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "vocab_size": 19, "hidden_size": 24,
               "num_hidden_layers": 2, "num_heads": 4, "head_dim": 12, "n_groups": 2, "state_size": 10,
               "conv_kernel": 3, "chunk_size": 4, "use_bias": True, "max_position_embeddings": 8},
    # Three gated delta nets, then attention with a gate.
    "qwen3_next": family("qwen3_next", "Qwen3NextForCausalLM", intermediate_size=28, moe_intermediate_size=12,
                         shared_expert_intermediate_size=20, num_hidden_layers=4, head_dim=8, num_experts=4,
                         num_experts_per_tok=2, norm_topk_prob=True, router_aux_loss_coef=0.0, pad_token_id="default",
                         **DELTA),
    "qwen3_5": family("qwen3_5_text", "Qwen3_5ForCausalLM", num_hidden_layers=4, head_dim=8, **DELTA),
    "qwen3_5_moe": family("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", intermediate_size="default", num_hidden_layers=4,
                          head_dim=8, moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=4,
                          num_experts_per_tok=2, router_aux_loss_coef=0.0, **DELTA),
    # Short convolutions between gates.
    "lfm2": family("lfm2", "Lfm2ForCausalLM", num_hidden_layers=3, block_multiple_of=10, full_attn_idxs=[1],
                   conv_bias=True, layer_types=["conv", "full_attention", "conv"]),
    "lfm2_moe": family("lfm2_moe", "Lfm2MoeForCausalLM", num_hidden_layers=4, num_dense_layers=2, conv_L_cache=4,
                       moe_intermediate_size=12, num_experts=4, num_experts_per_tok=2, routed_scaling_factor=1.5,
                       layer_types=["full_attention", "conv", "conv", "full_attention"]),
    "bamba": family("bamba", "BambaForCausalLM", num_hidden_layers=3, attn_layer_indices=[1], **MIXER),
    "granitemoehybrid": family("granitemoehybrid", "GraniteMoeHybridForCausalLM", intermediate_size=12,
                               num_hidden_layers=3, num_local_experts=4, num_experts_per_tok=2,
                               router_aux_loss_coef=0.0, shared_intermediate_size=20, embedding_multiplier=3.0,
                               attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5,
                               layer_types=["mamba", "attention", "mamba"], **MIXER),
    "granitemoehybrid_dense": family("granitemoehybrid", "GraniteMoeHybridForCausalLM", num_hidden_layers=3,
                                     num_local_experts=0, shared_intermediate_size=20, embedding_multiplier=3.0,
                                     attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5,
                                     layer_types=["mamba", "attention", "mamba"], **MIXER),
    "nemotron_h": family("nemotron_h", "NemotronHForCausalLM", num_hidden_layers="default", rms_norm_eps="default",
                         layers_block_type=["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
                         head_dim=8, mamba_num_heads=4, mamba_head_dim=12, n_groups=2, ssm_state_size=10,
                         conv_kernel=3, chunk_size=4),
    "nemotron_h_experts": family("nemotron_h", "NemotronHForCausalLM", num_hidden_layers="default",
                                 rms_norm_eps="default", head_dim=8, mamba_num_heads=4, mamba_head_dim=12, n_groups=2,
                                 layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
                                 ssm_state_size=10, conv_kernel=3, chunk_size=4, moe_intermediate_size=12,
                                 moe_shared_expert_intermediate_size=20, n_routed_experts=8, num_experts_per_tok=3,
                                 n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5),
}
ALL = MODELS | GRADED | EXPERTS | FAMILIES | STATES
# Options of config.json, for generation_reference.py alone.
VARIANTS = {
    "llama_biases": GRADED["llama_wide"] | {"attention_bias": True, "mlp_bias": True},
    "qwen3_biases": GRADED["qwen3"] | {"attention_bias": True},
    "olmo2_biases": GRADED["olmo2"] | {"attention_bias": True, "num_hidden_layers": 3},
    "gemma2_biases": GRADED["gemma2"] | {"attention_bias": True},
    "stablelm_biases": GRADED["stablelm"] | {"use_qkv_bias": True},
    "gpt_neox_sequential": GRADED["gpt_neox"] | {"use_parallel_residual": False},
    "gpt_neox_yarn": {key: value for key, value in GRADED["gpt_neox"].items() if not key.startswith("rotary_")} | {
        "attention_bias": False, "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 100.0,
            "partial_rotary_factor": 0.5}},
    "mixtral_yarn": EXPERTS["mixtral"] | {
        "head_dim": 4, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0}},
    "qwen3_moe_biases": EXPERTS["qwen3_moe"] | {
        "attention_bias": True, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0}},
    "qwen2_moe_no_biases": EXPERTS["qwen2_moe"] | {"qkv_bias": False},
    "glm4_moe_no_biases": EXPERTS["glm4_moe"] | {"attention_bias": False},
}


@contextlib.contextmanager
def in_float64():
    """Makes conversions to float32 keep float64. Norms, softmaxes and recurrences have them, and their rounding would add
    up over the layers."""
    known = {name: getattr(torch.Tensor, name) for name in ("float", "to", "type")}
    softmax = torch.nn.functional.softmax
    exact = lambda value: torch.float64 if value is torch.float32 else value
    converting = lambda convert: lambda self, *args, **named: convert(
        self, *map(exact, args), **{key: exact(value) for key, value in named.items()})
    torch.Tensor.float = torch.Tensor.double
    torch.Tensor.to, torch.Tensor.type = converting(known["to"]), converting(known["type"])
    torch.nn.functional.softmax = lambda *args, dtype=None, **named: softmax(*args, dtype=exact(dtype), **named)
    try:
        yield
    finally:
        torch.nn.functional.softmax = softmax
        for name, convert in known.items():
            setattr(torch.Tensor, name, convert)


def use_eager_experts(model):
    """Other implementations of experts lack float64."""
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")


def mean_loss(model):
    """Returns the mean over the positions that count, in float64."""
    tokens, labels, weights = (torch.tensor(part) for part in batch_of(0, SIZES))
    use_eager_experts(model)
    with in_float64():
        logits = model.double().eval()(tokens).logits
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (each * weights.flatten()).sum() / weights.sum()


def loss_of(model):
    with torch.no_grad():
        return float(mean_loss(model))


def saved(model):
    """Returns the tensors of the file that transformers saves, by their names in the file."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")


def gradients_of(model):
    """Returns gradients by the names in the file, in float32; a tied parameter occurs once."""
    mean_loss(model).backward()
    for parameter in model.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    for name, buffer in model.named_buffers():
        if is_router_bias(name) or ".act_fn." in name:
            buffer.data = torch.zeros_like(buffer)
    return saved(model.float())


def gradient_file(name):
    return pathlib.Path(__file__).with_name("gradients") / name / "model.safetensors"


def compare_gradients(name, model):
    """Compares the gradients of the installed transformers with the recorded ones."""
    golden = safetensors.torch.load_file(gradient_file(name))
    made = gradients_of(model)
    if made.keys() != golden.keys():
        sys.exit(f"{name}: gradients of {sorted(made)}, golden {sorted(golden)}")
    for parameter, gradient in made.items():
        if (gradient - golden[parameter]).norm() > 1e-5 * golden[parameter].norm():
            sys.exit(f"{name}: the gradient of {parameter} differs from the golden one")


def finetune_losses(model):
    """Returns the loss of each step, before its update, in float64."""
    model = model.double().train()
    use_eager_experts(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=TRAINING["learning_rate"], weight_decay=0.0,
                                  betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["epsilon"])
    losses = []
    for step in range(STEPS):
        tokens, labels, _ = (torch.tensor(part) for part in batch_of(step, SIZES))
        with in_float64():
            logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def formula(name, shape):
    numbers = initial_values(TRAINING["seed"], name, tuple(shape), "normal", 0.3)
    return torch.tensor(numbers, dtype=torch.float64)


def is_router_bias(name):
    return name.endswith(("e_score_correction_bias", "expert_bias"))


def model_of(config):
    config = copy.deepcopy(config)  # transformers adds keys to nested values
    values = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(config["model_type"], **values))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        file = pathlib.Path(folder) / "model.safetensors"
        weights = {name: formula(name, value.shape).float() for name, value in safetensors.torch.load_file(file).items()}
        safetensors.torch.save_file(weights, file, {"format": "pt"})
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def main():
    file = pathlib.Path(__file__).with_name("transformers.json")
    if len(sys.argv) > 1 and sys.argv[1] != "--add":
        action, folder, name = (sys.argv[1:] + ["", ""])[:3]
        if action == "--agrees":
            for name in ALL:
                entry = json.loads(file.read_text())[name]
                if name not in MODELS:
                    compare_gradients(name, model_of(entry["config"]))
                    print(f"{name}: the gradients of transformers {transformers.__version__} are the golden ones")
                losses = finetune_losses(model_of(entry["config"]))
                print(f"{name}: finetuned, transformers {transformers.__version__} loses {losses}")
                if any(abs(a - b) > 1e-6 * b for a, b in zip(losses, entry["finetune"], strict=True)):
                    sys.exit(f"{name}: golden are {entry['finetune']}")
            return
        entry = json.loads(file.read_text())[name]
        if action == "--write":
            model_of(entry["config"]).float().save_pretrained(folder)
            return
        loaded, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        loss, golden = loss_of(loaded), entry["loss"]
        print(f"{folder}: transformers {transformers.__version__} loses {loss:.9f}, golden {golden:.9f}")
        # Llama of transformers computes norms and angles in float32.
        sys.exit(0 if abs(loss - golden) <= 1e-7 * golden and not any(info.values()) else f"{folder}: differs; {info}")
    named = {name: config for name, config in ALL.items() if len(sys.argv) == 1 or name in sys.argv[2:]}
    made = json.loads(file.read_text()) if len(sys.argv) > 1 else {}
    made["made_by"] = f"transformers_reference.py with transformers {transformers.__version__}, torch {torch.__version__}"
    for name, config in named.items():
        model = model_of(config)
        made[name] = {"config": config, "loss": loss_of(model), "finetune": finetune_losses(model_of(config))}
        if name not in MODELS:
            gradient_file(name).parent.mkdir(parents=True, exist_ok=True)
            safetensors.torch.save_file(gradients_of(model_of(config)), gradient_file(name), {"format": "pt"})
    file.write_text(json.dumps({key: made[key] for key in ["made_by", *ALL, *made] if key in made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
