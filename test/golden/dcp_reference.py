#!/usr/bin/env python3
"""Writes test/golden/dcp with torch.distributed.checkpoint: the small model of convert_fixture.h, by two processes.
Usage: record_dcp.py FOLDER. `hf` has the names of transformers under `model`, split by rows as FSDP does, with an
optimizer. `mcore` has the names of Megatron core, with all layers in one tensor, split by layers."""
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

HIDDEN = 6


def parameters():
    """Element e of parameter p is 1000 p + e."""
    shapes = [("wte", (5, HIDDEN))]
    for layer in range(2):
        shapes += [(f"{layer}.norm", (HIDDEN,)), (f"{layer}.q", (HIDDEN, 2, 3, 2)), (f"{layer}.k", (HIDDEN, 2, 2)),
                   (f"{layer}.v", (HIDDEN, 2, 2)), (f"{layer}.gate", (HIDDEN, 4)), (f"{layer}.up", (HIDDEN, 4))]
    shapes.append(("head", (5, HIDDEN)))
    return {name: 1000 * number + torch.arange(float(torch.Size(shape).numel())).reshape(shape)
            for number, (name, shape) in enumerate(shapes)}


def hf(values):
    tensors = {"embed.weight": values["wte"], "head.weight": values["head"]}
    for layer in range(2):
        at = f"h.{layer}."
        tensors[at + "norm.weight"] = values[f"{layer}.norm"]
        tensors[at + "q.weight"] = values[f"{layer}.q"].reshape(HIDDEN, -1).T
        both = [values[f"{layer}.{name}"].reshape(HIDDEN, -1) for name in "kv"]
        tensors[at + "kv.weight"] = torch.cat(both, 1)
        tensors[at + "gate.weight"] = values[f"{layer}.gate"]
        tensors[at + "up.weight"] = values[f"{layer}.up"]
    return tensors


def mcore(values):
    def padded(rows):
        return torch.cat([rows, torch.zeros(3, HIDDEN)])

    def qkv(layer):
        groups = [values[f"{layer}.{name}"].reshape(HIDDEN, 2, -1, 2) for name in "qkv"]
        return torch.cat(groups, 2).reshape(HIDDEN, -1).T

    def fc1(layer):
        return torch.cat([values[f"{layer}.{name}"].T for name in ("gate", "up")])

    return {"embedding.weight": padded(values["wte"]), "output.weight": padded(values["head"]),
            "layers.norm.weight": torch.stack([values[f"{layer}.norm"] for layer in range(2)]),
            "layers.qkv.weight": torch.stack([qkv(layer) for layer in range(2)]),
            "layers.fc1.weight": torch.stack([fc1(layer) for layer in range(2)])}


def save(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))

    def split(tensors):
        return {name: distribute_tensor(tensor.contiguous(), mesh, [Shard(0)]) for name, tensor in tensors.items()}

    values = parameters()
    moments = split({f"exp_avg.{name}": tensor for name, tensor in hf(values).items()})
    dcp.save({"model": split(hf(values)), "optimizer": {"state": moments, "lr": 0.1}, "step": 7}, checkpoint_id=folder / "hf")
    moments = split({f"state.exp_avg.{name}": tensor for name, tensor in mcore(values).items()})
    dcp.save({**split(mcore(values)), "optimizer": moments, "rng_state/shard_0": [rank]}, checkpoint_id=folder / "mcore")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(save, (pathlib.Path(sys.argv[1]),), nprocs=2)
