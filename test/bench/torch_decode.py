#!/usr/bin/env python3
"""Decodes one text with transformers' GPT-2 124M on this CPU, like decode_bench. Prints milliseconds per token, the
median of 64. Usage: torch_decode.py [THREADS]. Needs torch and transformers; weights are random."""
import statistics
import sys
import time

import torch
import transformers

if len(sys.argv) > 1:
    torch.set_num_threads(int(sys.argv[1]))
model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
seconds = []
with torch.no_grad():
    answer = model(torch.ones(1, 32, dtype=torch.long), use_cache=True)
    for _ in range(64):
        begin = time.perf_counter()
        answer = model(torch.ones(1, 1, dtype=torch.long), past_key_values=answer.past_key_values, use_cache=True)
        seconds.append(time.perf_counter() - begin)
print(f"torch {torch.__version__}, {torch.get_num_threads()} threads: {1 / statistics.median(seconds):.1f} tokens/s, "
      f"{statistics.median(seconds) * 1e3:.2f} ms each")
