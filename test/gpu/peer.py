#!/usr/bin/env python3
"""GPT-2 in PyTorch, the peer of test/gpu/run. Needs PyTorch and a GPU.

  peer.py speed 124m|1b3 [STEPS]           prints the tokens/s of the recipe of nanoGPT: torch.compile, scaled dot
                                           product attention, autocast to bf16, fused AdamW; batches, accumulation and
                                           sizes as in gpt2_124m.yaml and gpt_1b3.yaml
  peer.py gradients PARAMETERS GRADIENTS TOKENS.bin SEQUENCE LIMIT
                                           compares the gradients of step 1 of a run of GPT-2 124M with those of float32
                                           for the same parameters, files of --dump-parameters and --dump-gradients;
                                           the batch is the whole of TOKENS.bin, ids of 16 bits
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {  # layers, heads, hidden size, sequence, sequences of a micro-batch, micro-batches
    "124m": (12, 12, 768, 1024, 32, 16),
    "1b3": (24, 16, 2048, 2048, 8, 32),
}
VOCABULARY, PADDED = 50257, 50304


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn, self.attn_proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp_fc, self.mlp_proj = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        q, k, v = (part.view(batch, sequence, self.heads, -1).transpose(1, 2)
                   for part in self.attn(self.ln1(x)).split(hidden, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.mlp_proj(F.gelu(self.mlp_fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, hidden, sequence):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(PADDED, hidden), nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.lnf = nn.LayerNorm(hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.lnf(x), self.wte.weight)[..., :VOCABULARY]
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def speed(size, steps):
    layers, heads, hidden, sequence, batch, rounds = SIZES[size]
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Gpt(layers, heads, hidden, sequence).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    compiled = torch.compile(model)
    tokens = torch.randint(VOCABULARY, (rounds, batch, sequence + 1), device="cuda")
    seconds = []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for part in tokens:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = compiled(part[:, :-1], part[:, 1:]) / rounds
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[min(3, steps - 1):])
    print(f"PyTorch {torch.__version__}, {size}: {1e3 * median:.1f} ms, {rounds * batch * sequence / median:,.0f} tokens/s, "
          f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


def read(file):
    from safetensors.torch import load_file
    return {name.split("/", 1)[1]: tensor for name, tensor in load_file(file).items() if name.startswith("1/")}


def places(model):
    """Yields a name of Espalier, the parameter of the model, and the part of its first dimension."""
    def both(name, module, part=slice(None)):
        yield name + "_weight", module.weight, part
        yield name + "_bias", module.bias, part
    hidden = model.wte.weight.shape[1]
    yield "embed.wte", model.wte.weight, slice(0, VOCABULARY)
    yield "embed.wpe", model.wpe.weight, slice(None)
    for i, block in enumerate(model.blocks):
        for name in "ln1", "ln2", "attn_proj", "mlp_fc", "mlp_proj":
            yield from both(f"block.{i}.{name}", getattr(block, name))
        for third, name in enumerate("qkv"):
            yield from both(f"block.{i}.attn_{name}", block.attn, slice(third * hidden, (third + 1) * hidden))
    yield from both("head.lnf", model.lnf)


def gradients(parameters, wanted_by, data, sequence, limit):
    layers, heads, hidden = SIZES["124m"][:3]
    model = Gpt(layers, heads, hidden, sequence).cuda()
    values, got = read(parameters), read(wanted_by)

    def view(tensor, name):  # Linear keeps [out, in], Espalier [in, out]
        is_linear = tensor.dim() == 2 and not name.startswith("embed.")
        return tensor.T if is_linear else tensor

    with torch.no_grad():
        for name, parameter, part in places(model):
            place = view(parameter[part], name)
            place.copy_(values[name].view(-1)[:place.numel()].view(place.shape))
    with open(data, "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).long().cuda()
    loss = model(tokens[:-1].view(-1, sequence), tokens[1:].view(-1, sequence))
    loss.backward()
    worst = {}
    for name, parameter, part in places(model):
        mine = view(parameter.grad[part], name)
        other = got.pop(name).view(-1)[:mine.numel()].view(mine.shape).cuda()
        worst[name] = (float((mine - other).norm() / mine.norm()), float(mine.norm()))
    assert not got, f"other gradients: {sorted(got)[:5]}"
    print(f"loss {float(loss.detach()):.5f}, {len(worst)} gradients, relative differences:")
    total = sum(norm**2 for _, norm in worst.values())**0.5
    wrong = 0
    # A bias of keys has no gradient, so that both gradients are rounding errors.
    for name, (difference, norm) in sorted(worst.items(), key=lambda item: -item[1][0] * item[1][1])[:5]:
        print(f"  {name:28} {difference:.2e} of norm {norm:.2e}")
    for name, (difference, norm) in worst.items():
        wrong += not difference * norm <= limit * norm + limit / 100 * total
    print(f"{wrong} above the limit of {limit:g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) in (2, 3) and words[0] == "speed" and words[1] in SIZES:
        speed(words[1], int(words[2]) if len(words) == 3 else 12)
    elif len(words) == 6 and words[0] == "gradients":
        sys.exit(gradients(words[1], words[2], words[3], int(words[4]), float(words[5])))
    else:
        sys.exit(__doc__)
