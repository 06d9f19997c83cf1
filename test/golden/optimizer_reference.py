#!/usr/bin/env python3
"""SGD, Muon, QK-clip and groups of parameters on the tiny models of reference.py, in float64: an oracle for optimizers.

    optimizer_reference.py            writes optimizers.json beside this file
    optimizer_reference.py --check    compares a new computation with optimizers.json and writes nothing

Needs torch. Gradients are those of reference.py. torch.optim updates the parameters of SGD and of AdamW. Muon is
written after Jordan et al. (2024): momentum, Newton-Schulz steps on float64 matrices, and decoupled weight decay. Each
entry has the settings of a run file and the losses of the first steps, in which all tokens count.
"""
import fnmatch
import json
import math
import pathlib
import re
import sys

import numpy as np
import torch

from reference import GPT2, LLAMA, TRAINING, Gpt2, Llama, batch_of, initial_parameters

STEPS = 4
CONFIG = GPT2 | {"hidden": 32, "head_dim": 8, "ffn": 64}
# Learning rates of groups of parameters, whose names have no number of a layer.
RATES = {"embed.wpe": 0.03, "block.ln*": 0.001, "block.mlp*": 0.002}
CASES = {
    "sgd": {"type": "SGD", "momentum": 0.9, "weight_decay": 0.1},
    "sgd_nesterov": {"type": "SGD", "momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
    "sgd_plain": {"type": "SGD", "momentum": 0, "weight_decay": 0},
    "adamw_groups": {"type": "AdamW", "weight_decay": 0.1, "rates": RATES},
    "sgd_groups": {"type": "SGD", "momentum": 0.9, "weight_decay": 0.1, "rates": RATES},
    "muon_groups": {"type": "Muon", "weight_decay": 0.1, "rates": RATES},
    "muon": {"type": "Muon", "weight_decay": 0.1},
    "muon_original": {"type": "Muon", "momentum": 0.9, "nesterov": False, "ns_steps": 3, "scale_mode": "shape_scaling",
                      "weight_decay": 0.1},
    "muon_clip": {"type": "Muon", "weight_decay": 0.1, "qk_clip_threshold": 0.3},
    "muon_clip_queries": {"type": "Muon", "weight_decay": 0.1, "qk_clip_threshold": 0.1, "qk_clip_alpha": 0.9},
    "adamw_clip": {"type": "AdamW", "weight_decay": 0.1, "qk_clip_threshold": 0.2, "qk_clip_alpha": 0.1},
    "llama_clip": {"model": "llama", "type": "AdamW", "weight_decay": 0.1, "qk_clip_threshold": 0.1,
                   "qk_clip_alpha": 0.3},
    "muon_unit_rms": {"type": "Muon", "scale_mode": "unit_rms_norm", "extra_scale_factor": 0.5, "weight_decay": 0},
}


def orthogonalize(matrix, steps):
    """Returns the matrix with all singular values near 1."""
    x = matrix / (matrix.norm() + 1e-7)
    if x.shape[0] > x.shape[1]:
        return orthogonalize(matrix.T, steps).T
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Muon for parameters of shape [inputs.., outputs..]; `inputs` counts the dimensions of the inputs."""

    def __init__(self, groups, lr, momentum=0.95, nesterov=True, ns_steps=5, scale_mode="spectral",
                 extra_scale_factor=None, weight_decay=0.0):
        factor = extra_scale_factor or (0.2 if scale_mode == "spectral" else 1)
        super().__init__(groups, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "ns_steps": ns_steps,
                                  "scale_mode": scale_mode, "factor": factor, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
                matrix = update.reshape(math.prod(p.shape[:group["inputs"]]), -1)
                inputs, outputs = matrix.shape
                scale = {"spectral": max(inputs, outputs), "shape_scaling": max(1, outputs / inputs),
                         "unit_rms_norm": outputs / inputs}[group["scale_mode"]] ** 0.5 * group["factor"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(orthogonalize(matrix, group["ns_steps"]).reshape(p.shape), alpha=-group["lr"] * scale)


def optimizers_of(settings, w, decays):
    """Returns the optimizers that together update all parameters."""
    settings = dict(settings)
    kind, decay, lr = settings.pop("type"), settings.pop("weight_decay"), TRAINING["learning_rate"]
    rates = settings.pop("rates", {})

    def rate_of(name):
        plain = re.sub(r"^block\.\d+", "block", name)
        return next((rate for pattern, rate in rates.items() if fnmatch.fnmatchcase(plain, pattern)), lr)

    def groups(names):
        return [{"params": [w[name]], "weight_decay": decay if name in decays else 0, "lr": rate_of(name)}
                for name in names]

    if kind == "AdamW":
        return [torch.optim.AdamW(groups(w), lr=lr, betas=(TRAINING["beta1"], TRAINING["beta2"]),
                                  eps=TRAINING["epsilon"])]
    if kind == "SGD":
        return [torch.optim.SGD(groups(w), lr=lr, **settings)]
    matrices = [name for name in w if name.startswith("block.") and name in decays]
    others = [name for name in w if name not in matrices]
    own = [{"params": [w[name]], "weight_decay": decay, "lr": rate_of(name), "inputs": 2 if "attn_proj" in name else 1}
           for name in matrices]
    return [Muon(own, lr, **settings),
            torch.optim.AdamW(groups(others), lr=lr, betas=(TRAINING["beta1"], TRAINING["beta2"]),
                              eps=TRAINING["epsilon"])]


def largest_scores(q, k):
    """Returns the largest causal attention score of each key-value head, before the softmax."""
    scores = np.einsum("bthgd,bshd->bhgts", q, k) / math.sqrt(q.shape[-1])
    seen = np.tril(np.ones(scores.shape[-2:], dtype=bool))
    return np.where(seen, scores, -np.inf).max(axis=(0, 2, 3, 4))


def clip(w, largest, threshold, alpha):
    """Scales the query and key weights of heads as Megatron's clip_qk, which leaves biases alone."""
    for prefix, scores in largest.items():
        factors = torch.tensor(np.minimum(1, threshold / np.maximum(scores, 1e-30)))
        for name, exponent in (("q", alpha), ("k", 1 - alpha)):
            weight = w[prefix + f"attn_{name}_weight"]  # [hidden, kv_heads, .., head_dim]
            weight.mul_((factors**exponent).reshape((-1,) + (1,) * (weight.dim() - 2)))


def train(settings):
    """Returns the losses of all steps, with clipping by the global norm."""
    settings = dict(settings)
    threshold, alpha = settings.pop("qk_clip_threshold", None), settings.pop("qk_clip_alpha", 0.5)
    model, largest = (Llama(LLAMA) if settings.pop("model", "gpt2") == "llama" else Gpt2(CONFIG)), {}
    model.observe = lambda prefix, q, k: largest.update({prefix: largest_scores(q, k)})
    w = {name: torch.tensor(value) for name, value in initial_parameters(model).items()}
    optimizers = optimizers_of(settings, w, {name for name, _, _, _, decay in model.parameters() if decay})
    losses = []
    for step in range(STEPS):
        tokens, labels, weights = batch_of(step, model.config)
        loss, gradients = model.step({name: value.numpy() for name, value in w.items()}, tokens, labels,
                                     np.ones_like(weights))
        norm = math.sqrt(sum((g**2).sum() for g in gradients.values()))
        scale = min(1.0, TRAINING["max_grad_norm"] / (norm + 1e-6))
        for name, gradient in gradients.items():
            w[name].grad = torch.tensor(gradient * scale)
        for optimizer in optimizers:
            optimizer.step()
        if threshold:
            clip(w, largest, threshold, alpha)
        losses.append(float(loss))
    return losses


def main():
    file = pathlib.Path(__file__).resolve().with_name("optimizers.json")
    made = {"made_by": "test/golden/optimizer_reference.py", "config": CONFIG,
            "cases": {name: {"settings": settings, "losses": train(settings)} for name, settings in CASES.items()}}
    if "--check" not in sys.argv[1:]:
        file.write_text(json.dumps(made, indent=1) + "\n")
        return
    recorded = json.loads(file.read_text())["cases"]
    for name, case in made["cases"].items():
        worst = max(abs(a - b) / b for a, b in zip(case["losses"], recorded[name]["losses"], strict=True))
        print(f"{name}: losses agree within {worst:.1e}")
        if worst > 1e-9:
            sys.exit(1)


if __name__ == "__main__":
    main()
