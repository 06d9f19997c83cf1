#!/usr/bin/env python3
"""Writes quantised weights and what transformers decodes them to: quantized/weights.safetensors and decoded.safetensors.

Every byte of a number and scales over the whole range occur. Needs torch and transformers.
"""
import pathlib

import safetensors.torch
import torch
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors


def main():
    folder = pathlib.Path(__file__).with_name("quantized")
    draw = torch.Generator().manual_seed(7)
    bytes_of = lambda *shape: torch.randint(0, 256, shape, generator=draw).to(torch.uint8)
    # Two matrices of 8 rows and 64 columns. The last scales are those of infinity and of the least exponent.
    blocks, scales = bytes_of(2, 8, 2, 16), torch.randint(90, 160, (2, 8, 2), generator=draw).to(torch.uint8)
    scales[-1, -1] = torch.tensor([255, 0], dtype=torch.uint8)
    stored = {"experts.gate_up_proj_blocks": blocks, "experts.gate_up_proj_scales": scales}
    decoded = {"experts.gate_up_proj": convert_moe_packed_tensors(blocks, scales)}
    decode = Fp8Dequantize(None)._dequantize_one
    for name, rows, columns, grid in (("equal", 24, 32, (3, 2)), ("each", 16, 16, (1, 1))):
        values = bytes_of(rows, columns)
        values.view(-1)[:256] = torch.arange(256).to(torch.uint8)
        values, factors = values.view(torch.float8_e4m3fn), torch.rand(grid, generator=draw) * 1e-3
        stored |= {f"{name}.weight": values, f"{name}.weight_scale_inv": factors}
        decoded[f"{name}.weight"] = decode(values, factors, torch.bfloat16)
    stored["norm.weight"] = decoded["norm.weight"] = torch.rand(8, generator=draw).to(torch.bfloat16)
    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(stored, folder / "weights.safetensors")
    safetensors.torch.save_file(decoded, folder / "decoded.safetensors")


if __name__ == "__main__":
    main()
