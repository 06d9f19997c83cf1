#!/usr/bin/env python3
"""Tiny transformers models for each file of configs/models, with weights from a formula: an oracle for conversions.

    transformers_reference.py                    writes transformers.json and gradients/ beside this file
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

import safetensors.torch
import torch
import transformers

from reference import TRAINING, batch_of, initial_values

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
MODELS |= GRADED
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
# Sinks, biases of experts, and bounds that the gates of experts reach.
EXPERTS |= {
    "gpt_oss": {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "vocab_size": 19, "hidden_size": 24,
                "intermediate_size": 12, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
                "head_dim": 8, "max_position_embeddings": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
                "sliding_window": 3, "swiglu_limit": 0.5, "router_aux_loss_coef": 0.0, "pad_token_id": None,
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 8.0,
                                    "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 64}},
}
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
# The names in a file for the experts' products `mlp.experts.gate_up_proj` and `mlp.experts.down_proj`.
EXPERT_NAMES = {"mixtral": ("block_sparse_moe", "w1", "w3", "w2"),
                "qwen3_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
                "qwen2_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
                "glm4_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
                "deepseek_v3": ("mlp", "gate_proj", "up_proj", "down_proj"),
                "olmoe": ("mlp", "gate_proj", "up_proj", "down_proj")}


@contextlib.contextmanager
def in_float64():
    """Makes `Tensor.float` keep float64. Gemma's norms call it, and their rounding would add up over the layers."""
    to_float32 = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = to_float32


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


def file_name(kind, name):
    """The name that a file of weights has for a parameter."""
    return name.replace("lm_head", "embed_out") if kind == "gpt_neox" else name


def in_file(kind, name, value):
    """Returns the tensors in a file, by name, that hold a tensor of the model: those of each expert separately."""
    if kind not in EXPERT_NAMES:
        return {file_name(kind, name): value}
    layer, gate, up, down = EXPERT_NAMES[kind]
    place = name.replace("mlp", layer)
    if name.endswith("gate_up_proj"):
        return {place.replace("gate_up_proj", f"{expert}.{part}.weight"): half.contiguous()
                for expert, both in enumerate(value) for part, half in zip((gate, up), both.chunk(2))}
    if name.endswith("experts.down_proj"):
        return {place.replace("down_proj", f"{expert}.{down}.weight"): each.contiguous()
                for expert, each in enumerate(value)}
    return {place: value}


def gradients_of(model):
    """Returns gradients by the names in the file, in float32; a tied parameter occurs once."""
    mean_loss(model).backward()
    tensors = [(name, parameter.grad) for name, parameter in model.named_parameters()]
    tensors += [(name, torch.zeros_like(buffer)) for name, buffer in model.named_buffers() if is_router_bias(name)]
    return {key: part for name, gradient in tensors
            for key, part in in_file(model.config.model_type, name, gradient.float()).items()}


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


def weights_of(kind, name, shape):
    """Returns the values of a parameter from the names in the file, which lists each expert's products separately."""
    if kind not in EXPERT_NAMES:
        return formula(file_name(kind, name), shape)
    layer, gate, up, down = EXPERT_NAMES[kind]
    place = name.replace("mlp", layer)
    if name.endswith("gate_up_proj"):
        half = (shape[1] // 2, shape[2])
        return torch.stack([torch.cat([formula(place.replace("gate_up_proj", f"{expert}.{part}.weight"), half)
                                       for part in (gate, up)]) for expert in range(shape[0])])
    if name.endswith("experts.down_proj"):
        return torch.stack([formula(place.replace("down_proj", f"{expert}.{down}.weight"), shape[1:])
                            for expert in range(shape[0])])
    return formula(place, shape)


def is_router_bias(name):
    return name.endswith("e_score_correction_bias")


def model_of(config):
    config = copy.deepcopy(config)  # transformers adds keys to nested values
    values = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(config["model_type"], **values))
    for name, parameter in model.named_parameters():  # a tied parameter occurs once, under its first name
        parameter.data = weights_of(config["model_type"], name, tuple(parameter.shape))
    for name, buffer in model.named_buffers():
        if is_router_bias(name):
            buffer.data = formula(name, tuple(buffer.shape))
    model.tie_weights()
    return model


def main():
    file = pathlib.Path(__file__).with_name("transformers.json")
    if len(sys.argv) > 1:
        action, folder, name = (sys.argv[1:] + ["", ""])[:3]
        if action == "--agrees":
            for name in MODELS | EXPERTS:
                entry = json.loads(file.read_text())[name]
                if name in GRADED | EXPERTS:
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
    entries = {name: {"config": config, "loss": loss_of(model_of(config)),
                      "finetune": finetune_losses(model_of(config))} for name, config in (MODELS | EXPERTS).items()}
    made = {"made_by": f"transformers_reference.py with transformers {transformers.__version__}, "
                       f"torch {torch.__version__}"}
    file.write_text(json.dumps(made | entries, indent=1) + "\n")
    for name, config in (GRADED | EXPERTS).items():
        gradient_file(name).parent.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(gradients_of(model_of(config)), gradient_file(name), {"format": "pt"})


if __name__ == "__main__":
    main()
