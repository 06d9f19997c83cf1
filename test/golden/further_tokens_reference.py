#!/usr/bin/env python3
"""Modules that predict further tokens (Megatron-LM's definition) behind a tiny Llama of transformers, as an oracle.

    further_tokens_reference.py      writes the entry llama_further of transformers.json and its gradients

The two modules have the names of DeepSeek-V3's files. Weights, batches and the training are those of
transformers_reference.py. The loss is that of the model's own head; the gradients, and the updates between the losses of
`finetune`, are of that loss and of the modules' losses.
"""
import json
import pathlib

import safetensors.torch
import torch
import transformers

from reference import TRAINING, batch_of
from transformers_reference import MODELS, SIZES, STEPS, formula, gradient_file, in_float64

NAME, DEPTH, FACTOR = "llama_further", 2, 0.3


def module_like(model):
    """Returns a module: a layer of the model's kind, with the projection and the norms in front of it and behind it."""
    layers, norm, width = model.model.layers, model.model.norm, model.config.hidden_size
    module = type(layers[0])(model.config, layer_idx=0)
    new_norm = lambda: type(norm)(width, eps=model.config.rms_norm_eps)
    module.enorm, module.hnorm = new_norm(), new_norm()
    module.eh_proj = torch.nn.Linear(2 * width, width, bias=False)
    module.shared_head = torch.nn.Module()
    module.shared_head.norm = new_norm()
    return module


def made_model():
    values = {key: value for key, value in MODELS["llama"].items() if key not in ("model_type", "architectures")}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values))
    for _ in range(DEPTH):
        model.model.layers.append(module_like(model))  # the model runs its first num_hidden_layers alone
    model.load_state_dict({name: formula(name, value.shape).float() for name, value in model.state_dict().items()})
    return model.double()


def summed(logits, labels, weights):
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (each * weights.flatten()).sum()


def rolled(values):
    return torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)


def losses_of(model, tokens, labels, weights):
    """Returns the mean loss of the model's head, and that with the modules' losses. Each sample counts as often for a
    module as for the head."""
    count, core = weights.sum(), model.model
    with in_float64():
        hidden = core(tokens).last_hidden_state
        main = summed(model.lm_head(hidden), labels, weights) / count
        positions = torch.arange(tokens.shape[1])[None]
        angles = core.rotary_emb(hidden, positions)
        total, ahead, ahead_weights = main, labels, weights
        for module in core.layers[core.config.num_hidden_layers:]:
            pair = torch.cat([module.enorm(core.embed_tokens(ahead)), module.hnorm(hidden)], dim=-1)
            layer = type(module).forward(module, module.eh_proj(pair), position_ids=positions, position_embeddings=angles)
            hidden = module.shared_head.norm(layer[0] if isinstance(layer, tuple) else layer)
            ahead, ahead_weights = rolled(ahead), rolled(ahead_weights)
            share = weights.sum(dim=1, keepdim=True) / ahead_weights.sum(dim=1, keepdim=True)
            total = total + FACTOR / DEPTH * summed(model.lm_head(hidden), ahead, ahead_weights * share) / count
    return main, total


def finetune_losses(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=TRAINING["learning_rate"], weight_decay=0.0,
                                  betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["epsilon"])
    losses = []
    for step in range(STEPS):
        tokens, labels, weights = (torch.tensor(part) for part in batch_of(step, SIZES))
        main, total = losses_of(model, tokens, labels, torch.ones_like(weights))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(main.item())
    return losses


def main():
    model = made_model()
    loss, total = losses_of(model, *(torch.tensor(part) for part in batch_of(0, SIZES)))
    total.backward()
    gradients = {name: parameter.grad.float().contiguous() for name, parameter in model.named_parameters()}
    gradient_file(NAME).parent.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(gradients, gradient_file(NAME), {"format": "pt"})
    file = pathlib.Path(__file__).with_name("transformers.json")
    made = json.loads(file.read_text())
    section = "model.model_config."
    made[NAME] = {"config": MODELS["llama"],
                  "sets": [f"{section}mtp_num_layers={DEPTH}", f"{section}mtp_loss_scaling_factor={FACTOR}"],
                  "loss": loss.item(), "finetune": finetune_losses(made_model())}
    file.write_text(json.dumps(made, indent=1) + "\n")


main()
