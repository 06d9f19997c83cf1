#!/usr/bin/env python3
"""Decodes with llama.cpp on this CPU as `espalier serve` does, and prints tokens per second of both, in turns.

Usage: llama_cpp.py ESPALIER CHECKPOINT [TEXTS ...] [--threads 2] [--rounds 3]

The model is GPT-2 124M in f32; llama.cpp gets random weights of the same shapes. CHECKPOINT is one of
configs/gpt2_124m.yaml with seq_length 256 and compute_dtype float32. TEXTS are decoded at once: 1, 4, 8 and 16 by
default, each on a plan and a server of that many. Needs the packages xllamacpp and gguf."""
import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import tempfile
import time

import gguf
import numpy
import xllamacpp

from serving import Server, post, rate

LAYERS, HIDDEN, HEADS, CONTEXT, VOCABULARY = 12, 768, 12, 256, 50257


def write_model(path):
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(4 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY)
    writer.add_token_merges(["t 1"])
    writer.add_eos_token_id(VOCABULARY - 1)
    draw = numpy.random.default_rng(1)

    def add(name, *shape):
        writer.add_tensor(name, (0.02 * draw.standard_normal(shape)).astype(numpy.float32))

    def add_layer(name, outputs, inputs):
        add(name + ".weight", outputs, inputs)
        add(name + ".bias", outputs)

    add("token_embd.weight", VOCABULARY, HIDDEN)
    add("position_embd.weight", CONTEXT, HIDDEN)
    for norm in ["output_norm"] + [f"blk.{i}.{name}" for i in range(LAYERS) for name in ("attn_norm", "ffn_norm")]:
        writer.add_tensor(norm + ".weight", numpy.ones(HIDDEN, numpy.float32))
        writer.add_tensor(norm + ".bias", numpy.zeros(HIDDEN, numpy.float32))
    for i in range(LAYERS):
        add_layer(f"blk.{i}.attn_qkv", 3 * HIDDEN, HIDDEN)
        add_layer(f"blk.{i}.attn_output", HIDDEN, HIDDEN)
        add_layer(f"blk.{i}.ffn_up", 4 * HIDDEN, HIDDEN)
        add_layer(f"blk.{i}.ffn_down", HIDDEN, 4 * HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    def __init__(self, model, texts, threads):
        params = xllamacpp.CommonParams()
        params.model.path = model
        params.n_parallel, params.n_ctx = texts, texts * CONTEXT
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.warmup, params.n_gpu_layers, params.cache_prompt, params.verbosity = True, 0, False, 0
        self.server = xllamacpp.Server(params)

    def seconds(self, texts, tokens):
        def ask(_):
            answer = json.load(post(self.server.listening_address + "/completion",
                                    {"prompt": [7], "n_predict": tokens, "temperature": 1, "ignore_eos": True,
                                     "cache_prompt": False}))
            assert answer["tokens_predicted"] == tokens, answer
        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(texts) as pool:
            list(pool.map(ask, range(texts)))
        return time.perf_counter() - begin


def serve_plan(options, folder, texts):
    """Returns a server of a plan for this number of texts."""
    run = os.path.join(os.path.dirname(__file__), "../../configs/gpt2_124m.yaml")
    plan = os.path.join(folder, f"{texts}.plan")
    sets = ["run_mode=predict", "model.model_config.compute_dtype=float32",
            f"model.model_config.seq_length={CONTEXT}", f"runner_config.batch_size={texts}"]
    subprocess.run([options.espalier, "compile", run, "-o", plan] + [part for one in sets for part in ("--set", one)],
                   check=True, stdout=subprocess.DEVNULL)
    return Server(options.espalier, plan, options.checkpoint, options.threads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("espalier")
    parser.add_argument("checkpoint")
    parser.add_argument("texts", type=int, nargs="*", default=[1, 4, 8, 16])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"xllamacpp {xllamacpp.__version__}, {options.threads} threads", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.gguf")
        write_model(model)
        for texts in options.texts:
            own = serve_plan(options, folder, texts)
            peer = LlamaCpp(model, texts, options.threads)
            rates = [(rate(own, texts), rate(peer, texts)) for _ in range(options.rounds)]
            own.end()
            del peer
            first, second = (statistics.median(one) for one in zip(*rates))
            print(f"{texts} texts: espalier {first:.0f} tokens/s, llama.cpp {second:.0f} tokens/s: "
                  f"{statistics.median(a / b for a, b in rates):.2f} x", flush=True)


if __name__ == "__main__":
    main()
