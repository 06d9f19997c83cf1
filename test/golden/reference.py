#!/usr/bin/env python3
"""Tiny GPT-2, Llama and Qwen3 with experts in NumPy, float64: an oracle that shares no code with Espalier.

    python3 reference.py            writes gpt2.json, llama.json and qwen3_moe.json beside this file
    python3 reference.py --check    compares the backward formulas with finite differences and writes nothing

Each file has the configuration, losses and gradient norms of ten AdamW steps, and the gradients of the first step
(of the mean loss, before clipping, row-major). Inputs are integer formulas that any reader can repeat:

- initial values: `initial_values`, the function of runtime/train/initial_value.h, rounded to f32;
- sample i has the tokens s(i, 0..seq-1) and the labels s(i, 1..seq), see `token` below. Step k uses the samples
  k * batch .. (k + 1) * batch - 1. A position counts in the loss unless (i + t) is a multiple of 5.
"""
import json
import math
import pathlib
import sys

import numpy as np

from reference_layers import (attention, cross_entropy, gelu_tanh, layer_norm, linear, mixture, rms_norm, rope,
                              silu)

MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF

TRAINING = {"seed": 42, "batch": 4, "steps": 10, "learning_rate": 0.01, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-6,
            "weight_decay": 0.1, "max_grad_norm": 1.0}
GPT2 = {"seq": 8, "vocab": 19, "hidden": 24, "layers": 2, "heads": 4, "head_dim": 6, "ffn": 48,
        "initializer_range": 0.1, "norm_epsilon": 1e-5}
LLAMA = {"seq": 8, "vocab": 19, "hidden": 24, "layers": 2, "kv_heads": 2, "group": 3, "head_dim": 4, "ffn": 40,
         "initializer_range": 0.1, "norm_epsilon": 1e-5, "theta": 10000.0}
# In the first step, 2 of 64 choices are dropped in the first layer and 6 in the second.
QWEN3 = {"seq": 8, "vocab": 19, "hidden": 24, "layers": 2, "kv_heads": 2, "group": 3, "head_dim": 6, "ffn": 10,
         "experts": 4, "choices": 2, "capacity": 5, "balance": 0.1,
         "initializer_range": 0.1, "norm_epsilon": 1e-6, "theta": 1000000.0}


# Initial values and data -------------------------------------------------------------------------------------------

def random_bits(seed, step, stream, sample, element):
    """Returns random bits by Philox-2x32 with 7 rounds, as in format/abi.h."""
    key = (seed * 0x9E3779B9 + step * 0x85EBCA6B + stream * 0xC2B2AE35) & MASK32
    low, high = element & MASK32, (element >> 32) ^ ((sample * 0x27D4EB2F) & MASK32)
    for _ in range(7):
        product = low * 0xD256D193
        low, high = (product >> 32) ^ key ^ high, product & MASK32
        key = (key + 0x9E3779B9) & MASK32
    return low


def initial_key(seed, name):
    """Returns FNV-1a of the name, mixed with the seed and folded to 32 bits."""
    value = 0xCBF29CE484222325 ^ (seed * 0x9E3779B97F4A7C15 & MASK64)
    for character in name.encode():
        value = (value ^ character) * 0x100000001B3 & MASK64
    return (value ^ (value >> 32)) & MASK32


def initial_values(seed, name, shape, kind, stddev):
    """Returns a parameter's initial values: Box-Muller on bits 2k and 2k + 1 for the elements 2k and 2k + 1."""
    if kind != "normal":
        return np.full(shape, 1.0 if kind == "ones" else 0.0)
    key, values = initial_key(seed, name), []
    for index in range(math.prod(shape)):
        pair = index // 2
        u1 = (random_bits(key, 0, 0, 0, 2 * pair) + 1.0) / 2**32
        u2 = random_bits(key, 0, 0, 0, 2 * pair + 1) / 2**32
        turn = math.sin if index % 2 else math.cos
        values.append(stddev * math.sqrt(-2 * math.log(u1)) * turn(2 * math.pi * u2))
    return np.array(values, dtype=np.float32).astype(np.float64).reshape(shape)


def token(i, t, vocab):
    return (5 * i * i + 3 * t * t + 7 * i * t + 2 * i + t) % vocab


def batch_of(step, config):
    """Returns (tokens, labels, weights) of a step, each [batch, seq]."""
    first, seq, vocab = step * TRAINING["batch"], config["seq"], config["vocab"]
    samples = range(first, first + TRAINING["batch"])
    tokens = np.array([[token(i, t, vocab) for t in range(seq)] for i in samples])
    labels = np.array([[token(i, t + 1, vocab) for t in range(seq)] for i in samples])
    weights = np.array([[0.0 if (i + t) % 5 == 0 else 1.0 for t in range(seq)] for i in samples])
    return tokens, labels, weights


# Models: `parameters` lists (name, shape, kind, stddev, decay); `step` returns the loss and all gradients ------------

def observe_nothing(prefix, q, k):
    """`observe` of a model gets q [batch, seq, kv_heads, group, head_dim] and k [batch, seq, kv_heads, head_dim] of each
    layer, as attention reads them."""


class Gpt2:
    """GPT-2: LayerNorm before each block, learned positions, biases, tanh GELU, head tied to the token table."""

    def __init__(self, config):
        self.config = config
        self.observe = observe_nothing

    def parameters(self):
        c = self.config
        std, small = c["initializer_range"], c["initializer_range"] / math.sqrt(2 * c["layers"])
        h, heads, f = c["hidden"], (c["heads"], c["head_dim"]), c["ffn"]
        yield "embed.wte", (c["vocab"], h), "normal", std, True
        yield "embed.wpe", (c["seq"], h), "normal", std, True
        for layer in range(c["layers"]):
            p = f"block.{layer}."
            for norm in ("ln1", "ln2"):
                yield p + norm + "_weight", (h,), "ones", 0, False
                yield p + norm + "_bias", (h,), "zeros", 0, False
            for name in "qkv":
                yield p + f"attn_{name}_weight", (h,) + heads, "normal", std, True
                yield p + f"attn_{name}_bias", heads, "zeros", 0, False
            yield p + "attn_proj_weight", heads + (h,), "normal", small, True
            yield p + "attn_proj_bias", (h,), "zeros", 0, False
            yield p + "mlp_fc_weight", (h, f), "normal", std, True
            yield p + "mlp_fc_bias", (f,), "zeros", 0, False
            yield p + "mlp_proj_weight", (f, h), "normal", small, True
            yield p + "mlp_proj_bias", (h,), "zeros", 0, False
        yield "head.lnf_weight", (h,), "ones", 0, False
        yield "head.lnf_bias", (h,), "zeros", 0, False

    def block(self, w, prefix, x):
        """Runs one layer. Returns its value and its backward, which fills the gradients of the layer's parameters."""
        get = lambda name: w[prefix + name]
        eps = self.config["norm_epsilon"]
        n1, back_n1 = layer_norm(x, get("ln1_weight"), get("ln1_bias"), eps)
        heads = {name: linear(n1, get(f"attn_{name}_weight"), get(f"attn_{name}_bias")) for name in "qkv"}
        self.observe(prefix, heads["q"][0][:, :, :, None], heads["k"][0])
        mixed, back_mixed = attention(heads["q"][0][:, :, :, None], heads["k"][0], heads["v"][0])
        projected, back_projected = linear(mixed[:, :, :, 0], get("attn_proj_weight"), get("attn_proj_bias"))
        middle = x + projected
        n2, back_n2 = layer_norm(middle, get("ln2_weight"), get("ln2_bias"), eps)
        wide, back_wide = linear(n2, get("mlp_fc_weight"), get("mlp_fc_bias"))
        active, back_active = gelu_tanh(wide)
        narrow, back_narrow = linear(active, get("mlp_proj_weight"), get("mlp_proj_bias"))

        def backward(dy, gradients):
            def put(name, dw, db):
                gradients[prefix + name + "_weight"], gradients[prefix + name + "_bias"] = dw, db

            da, *g = back_narrow(dy)
            put("mlp_proj", *g)
            dn2, *g = back_wide(back_active(da))
            put("mlp_fc", *g)
            dm, *g = back_n2(dn2)
            put("ln2", *g)
            dm = dm + dy
            dmixed, *g = back_projected(dm)
            put("attn_proj", *g)
            dq, dk, dv = back_mixed(dmixed[:, :, :, None])
            dn1 = 0
            for name, d in (("q", dq[:, :, :, 0]), ("k", dk), ("v", dv)):
                part, *g = heads[name][1](d)
                put("attn_" + name, *g)
                dn1 = dn1 + part
            dx, *g = back_n1(dn1)
            put("ln1", *g)
            return dx + dm

        return middle + narrow, backward

    def step(self, w, tokens, labels, weights):
        x = w["embed.wte"][tokens] + w["embed.wpe"][None]
        backs = []
        for layer in range(self.config["layers"]):
            x, back = self.block(w, f"block.{layer}.", x)
            backs.append(back)
        n, back_n = layer_norm(x, w["head.lnf_weight"], w["head.lnf_bias"], self.config["norm_epsilon"])
        logits, back_logits = linear(n, w["embed.wte"].T)
        loss, dlogits = cross_entropy(logits, labels, weights)
        gradients = {}
        dn, dhead = back_logits(dlogits)
        dx, gradients["head.lnf_weight"], gradients["head.lnf_bias"] = back_n(dn)
        for back in reversed(backs):
            dx = back(dx, gradients)
        gradients["embed.wpe"] = dx.sum(0)
        gradients["embed.wte"] = dhead.T.copy()
        np.add.at(gradients["embed.wte"], tokens, dx)
        return loss, gradients


class Llama:
    """Llama: RMSNorm before each block, rotary positions, SwiGLU, grouped-query attention, untied head, no biases."""

    def __init__(self, config):
        self.config = config
        self.observe = observe_nothing

    def parameters(self):
        c = self.config
        std, small = c["initializer_range"], c["initializer_range"] / math.sqrt(2 * c["layers"])
        h, kv, q, f = c["hidden"], (c["kv_heads"], c["head_dim"]), (c["kv_heads"], c["group"], c["head_dim"]), c["ffn"]
        yield "embed.wte", (c["vocab"], h), "normal", std, True
        for layer in range(c["layers"]):
            p = f"block.{layer}."
            yield p + "attn_norm_weight", (h,), "ones", 0, False
            yield p + "attn_q_weight", (h,) + q, "normal", std, True
            yield p + "attn_k_weight", (h,) + kv, "normal", std, True
            yield p + "attn_v_weight", (h,) + kv, "normal", std, True
            yield p + "attn_o_weight", q + (h,), "normal", small, True
            yield p + "mlp_norm_weight", (h,), "ones", 0, False
            yield p + "mlp_gate_weight", (h, f), "normal", std, True
            yield p + "mlp_up_weight", (h, f), "normal", std, True
            yield p + "mlp_down_weight", (f, h), "normal", small, True
        yield "head.norm_weight", (h,), "ones", 0, False
        yield "head.lm_head_weight", (c["vocab"], h), "normal", std, True

    def turn(self, get, name, x):
        """Returns q or k as attention reads it, computed from its projection; backward returns the projection's
        gradient."""
        turned, back = rope(x, self.config["theta"])
        return turned, lambda dy, put: back(dy)

    def mlp(self, get, x):
        gate, back_gate = linear(x, get("mlp_gate"))
        up, back_up = linear(x, get("mlp_up"))
        active, back_active = silu(gate)
        narrow, back_narrow = linear(active * up, get("mlp_down"))

        def backward(dy, put):
            dwide, g = back_narrow(dy)
            put("mlp_down", g)
            dgate, g = back_gate(back_active(dwide * up))
            put("mlp_gate", g)
            dup, g = back_up(dwide * active)
            put("mlp_up", g)
            return dgate + dup

        return narrow, backward

    def block(self, w, prefix, x):
        get = lambda name: w[prefix + name + "_weight"]
        eps = self.config["norm_epsilon"]
        n1, back_n1 = rms_norm(x, get("attn_norm"), eps)
        heads = {name: linear(n1, get("attn_" + name)) for name in "qkv"}
        turned = {name: self.turn(get, name, heads[name][0]) for name in "qk"}
        self.observe(prefix, turned["q"][0], turned["k"][0])
        mixed, back_mixed = attention(turned["q"][0], turned["k"][0], heads["v"][0])
        projected, back_projected = linear(mixed, get("attn_o"))
        middle = x + projected
        n2, back_n2 = rms_norm(middle, get("mlp_norm"), eps)
        narrow, back_mlp = self.mlp(get, n2)

        def backward(dy, gradients):
            def put(name, gradient):
                gradients[prefix + name + "_weight"] = gradient

            dm, g = back_n2(back_mlp(dy, put))
            put("mlp_norm", g)
            dm = dm + dy
            dmixed, g = back_projected(dm)
            put("attn_o", g)
            dq, dk, dv = back_mixed(dmixed)
            dn1 = 0
            for name, d in (("q", turned["q"][1](dq, put)), ("k", turned["k"][1](dk, put)), ("v", dv)):
                part, g = heads[name][1](d)
                put("attn_" + name, g)
                dn1 = dn1 + part
            dx, g = back_n1(dn1)
            put("attn_norm", g)
            return dx + dm

        return middle + narrow, backward

    def step(self, w, tokens, labels, weights):
        x = w["embed.wte"][tokens]
        backs = []
        for layer in range(self.config["layers"]):
            x, back = self.block(w, f"block.{layer}.", x)
            backs.append(back)
        n, back_n = rms_norm(x, w["head.norm_weight"], self.config["norm_epsilon"])
        logits, back_logits = linear(n, w["head.lm_head_weight"].T)
        loss, dlogits = cross_entropy(logits, labels, weights)
        dn, dhead = back_logits(dlogits)
        gradients = {"head.lm_head_weight": dhead.T.copy()}
        dx, gradients["head.norm_weight"] = back_n(dn)
        for back in reversed(backs):
            dx = back(dx, gradients)
        gradients["embed.wte"] = np.zeros_like(w["embed.wte"])
        np.add.at(gradients["embed.wte"], tokens, dx)
        return loss, gradients


class Qwen3Moe(Llama):
    """Qwen3 MoE: Llama's attention with norms over each head of q and k, and a mixture of experts as MLP."""

    def parameters(self):
        c = self.config
        std, small = c["initializer_range"], c["initializer_range"] / math.sqrt(2 * c["layers"])
        e, h, f = c["experts"], c["hidden"], c["ffn"]
        for name, *rest in super().parameters():
            p, _, own = name.rpartition(".")
            if own == "mlp_gate_weight":
                yield p + ".router_weight", (h, e), "normal", std, True
            if own.startswith("mlp_") and own != "mlp_norm_weight":
                kind = own.removeprefix("mlp_")
                yield f"{p}.expert_{kind}", (e, f, h) if "down" in kind else (e, h, f), *rest[1:]
                continue
            yield name, *rest
            if own in ("attn_q_weight", "attn_k_weight"):
                yield f"{p}.{own[:6]}_norm_weight", (c["head_dim"],), "ones", 0, False

    def turn(self, get, name, x):
        normal, back_normal = rms_norm(x, get(f"attn_{name}_norm"), self.config["norm_epsilon"])
        turned, back_turned = super().turn(get, name, normal)

        def backward(dy, put):
            dx, g = back_normal(back_turned(dy, put))
            put(f"attn_{name}_norm", g)
            return dx

        return turned, backward

    def mlp(self, get, x):
        c, names = self.config, ("router", "expert_gate", "expert_up", "expert_down")
        experts, balance, back_experts = mixture(x, *map(get, names), c["choices"], c["capacity"], c["balance"],
                                                 self.share)
        self.balances.append(balance)

        def backward(dy, put):
            dx, *gradients = back_experts(dy)
            for name, gradient in zip(names, gradients):
                put(name, gradient)
            return dx

        return experts, backward

    def step(self, w, tokens, labels, weights):
        self.share, self.balances = weights / weights.sum(), []
        loss, gradients = super().step(w, tokens, labels, weights)
        return loss + sum(self.balances), gradients


# Training and files --------------------------------------------------------------------------------------------------

def initial_parameters(model):
    return {name: initial_values(TRAINING["seed"], name, shape, kind, stddev)
            for name, shape, kind, stddev, _ in model.parameters()}


def train(model):
    """Runs ten steps of AdamW with decoupled decay and clipping by the global norm."""
    t, w = TRAINING, initial_parameters(model)
    decays = {name for name, _, _, _, decay in model.parameters() if decay}
    first, second = ({name: np.zeros_like(value) for name, value in w.items()} for _ in range(2))
    losses, norms, gradients_of_first_step = [], [], None
    for step in range(t["steps"]):
        loss, gradients = model.step(w, *batch_of(step, model.config))
        norm = math.sqrt(sum((g**2).sum() for g in gradients.values()))
        clip = min(1.0, t["max_grad_norm"] / (norm + 1e-6))
        gradients_of_first_step = gradients_of_first_step or gradients
        losses.append(loss)
        norms.append(norm)
        for name, gradient in gradients.items():
            g = gradient * clip
            first[name] = t["beta1"] * first[name] + (1 - t["beta1"]) * g
            second[name] = t["beta2"] * second[name] + (1 - t["beta2"]) * g * g
            m = first[name] / (1 - t["beta1"] ** (step + 1))
            v = second[name] / (1 - t["beta2"] ** (step + 1))
            decay = t["weight_decay"] * w[name] if name in decays else 0
            w[name] = w[name] - t["learning_rate"] * (m / (np.sqrt(v) + t["epsilon"]) + decay)
    return losses, norms, gradients_of_first_step


def check(model):
    """Returns the largest difference between the gradients and central differences, over a few elements of each."""
    w, data = initial_parameters(model), batch_of(0, model.config)
    generator, worst, h = np.random.default_rng(1), 0.0, 1e-5
    for name in w:  # moves values away from 1 and 0, where some terms vanish
        w[name] = w[name] + 0.1 * generator.standard_normal(w[name].shape)
    _, gradients = model.step(w, *data)
    assert set(gradients) == set(w) == {name for name, *_ in model.parameters()}
    for name, value in w.items():
        assert gradients[name].shape == value.shape, name
        flat = value.reshape(-1)
        for index in generator.integers(0, flat.size, 6):
            center = flat[index]
            flat[index] = center + h
            above, _ = model.step(w, *data)
            flat[index] = center - h
            below, _ = model.step(w, *data)
            flat[index] = center
            worst = max(worst, abs((above - below) / (2 * h) - gradients[name].reshape(-1)[index]))
    return worst


def write(path, model):
    losses, norms, gradients = train(model)
    parameters = [{"name": name, "shape": shape, "kind": kind, "stddev": stddev, "decay": decay,
                   "gradient": [float(f"{g:.7g}") for g in gradients[name].reshape(-1)]}
                  for name, shape, kind, stddev, decay in model.parameters()]
    lines = ",\n".join(json.dumps(parameter) for parameter in parameters)
    head = json.dumps({"made_by": "test/golden/reference.py", "config": model.config, "training": TRAINING,
                       "losses": losses, "gradient_norms": norms})
    path.write_text(head[:-1] + ',\n"parameters": [\n' + lines + "\n]}\n")


def main():
    folder = pathlib.Path(__file__).resolve().parent
    for name, model in (("gpt2", Gpt2(GPT2)), ("llama", Llama(LLAMA)), ("qwen3_moe", Qwen3Moe(QWEN3))):
        worst = check(model)
        print(f"{name}: formulas and differences agree within {worst:.1e}")
        if worst > 1e-8:
            sys.exit(1)
        if "--check" not in sys.argv[1:]:
            write(folder / f"{name}.json", model)


if __name__ == "__main__":
    main()
