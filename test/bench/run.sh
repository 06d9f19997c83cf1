#!/usr/bin/env bash
# `./dev bench`: medians of compile time, memory and plan size, and of training steps; speed of sums over ranks, of
# decoding, of the tokenizer and of building an index. Each is printed with its limit. Nothing else should run at the
# same time. Usage: run.sh BUILD
set -euo pipefail
build=${1:?usage: run.sh BUILD}
root="$(dirname "$0")/../.."
espalier="$build/bin/espalier"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

median() { sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

# compileBench RUN SECONDS [TARGET]: the bounds are the project's goals for two cores.
compileBench() {
  local name="$1${3:+ $3}" bound=$2
  for _ in 1 2 3; do
    /usr/bin/time -f '%e %M' -a -o "$scratch/$name.time" \
      "$espalier" compile "$root/configs/$1.yaml" --target "${3:-cpu}" -o "$scratch/$name.plan" >/dev/null
  done
  local seconds kilobytes
  seconds=$(cut -d' ' -f1 "$scratch/$name.time" | median)
  kilobytes=$(cut -d' ' -f2 "$scratch/$name.time" | median)
  awk -v name="$name" -v s="$seconds" -v kb="$kilobytes" -v size="$(stat -c %s "$scratch/$name.plan")" -v bound="$bound" \
    'BEGIN { printf "%-14s %6.2f s (bound %s)   %6.0f MB (bound 500)   plan %5.2f MB (bound 5)\n",
             name, s, bound, kb * 1024 / 1e6, size / 1e6 }'
}

# stepBench PLAN STEPS WARMUP THREADS [OPTION...]: prints the median of a step, and the time of its floating-point
# operations at the peak of this machine. The first `espalier run` measures and stores the peak; MFU is the ratio of the
# two times.
stepBench() {
  "$espalier" run "$1" --data "$scratch/text" --steps "$2" --threads "$4" --metrics "$scratch/metrics" "${@:5}" >/dev/null
  python3 - "$scratch/metrics" "$3" <<'PYTHON'
import json, statistics, sys
steps = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")][int(sys.argv[2]):]
seconds = statistics.median(step["step_seconds"] for step in steps)
floor = statistics.median(step["step_seconds"] * step["mfu"] for step in steps)
tokens = statistics.median(step["tokens_per_second"] for step in steps)
print(f"{tokens:.0f} tokens/s, {seconds * 1e3:.2f} ms a step; floor {floor * 1e3:.2f} ms, "
      f"{floor / seconds * 100:.0f} % of the measured peak; best step "
      f"{min(step['step_seconds'] for step in steps) * 1e3:.2f} ms, {len(steps)} steps")
PYTHON
}

echo "load of the machine before: $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) cores; medians of 3"
compileBench gpt2_13b 3
compileBench gpt2_13b_4x8 3
compileBench gpt2_13b 3 cuda
compileBench gpt3_175b 5

"$root/test/e2e/license_text.sh" "$scratch/text"
"$espalier" compile "$root/configs/gpt2_124m.yaml" -o "$scratch/124m.plan" \
  --set model.model_config.seq_length=64 --set runner_config.batch_size=4 \
  --set model.model_config.compute_dtype=float32 --set model.model_config.embedding_dropout_prob=0 \
  --set model.model_config.hidden_dropout_rate=0 --set model.model_config.attention_dropout_rate=0 >/dev/null
echo "GPT-2 124M, f32, B 4, T 64, 2 threads (bound 240 tokens/s):"
echo "  $(stepBench "$scratch/124m.plan" 10 3 2)"

"$espalier" compile "$root/configs/tiny_gpt.yaml" -o "$scratch/small.plan" --cluster cpu_local:1x1 \
  --set parallel_config.data_parallel=1 --set parallel_config.model_parallel=1 --set parallel_config.pipeline_stage=1 \
  --set model.model_config.num_layers=2 --set model.model_config.seq_length=32 --set runner_config.batch_size=2 >/dev/null
echo "2 layers, hidden 64, vocabulary 256, f32, B 2, T 32, 1 thread (bound 1.6 ms):"
echo "  $(stepBench "$scratch/small.plan" 2000 200 1)"

"$espalier" compile "$root/configs/tiny_gpt.yaml" -o "$scratch/ranks.plan" --set lr_schedule.total_steps=300 >/dev/null
echo "configs/tiny_gpt.yaml, 8 ranks (bound: processes take 1.2 times what threads do):"
echo "  threads    $(stepBench "$scratch/ranks.plan" 300 50 1)"
echo "  processes  $(stepBench "$scratch/ranks.plan" 300 50 1 --processes)"

echo "all-reduce (bound: processes take half of OpenMPI's time):"
"$build/test/bench/comm_bench" | sed 's/^/  /'

# One text at a time. Also measures transformers if $PYTHON has it.
"$espalier" compile "$root/configs/gpt2_124m.yaml" -o "$scratch/decode.plan" --cluster cpu_local:1x1 \
  --set run_mode=predict --set runner_config.batch_size=1 --set model.model_config.compute_dtype=float32 >/dev/null
echo "decoding, GPT-2 124M, f32, one text, 2 threads (bound 70 % of the bandwidth):"
echo "  $("$build/test/bench/decode_bench" "$scratch/decode.plan" 2)"
if "${PYTHON:-python3}" -c 'import transformers, torch' 2>/dev/null; then
  echo "  $("${PYTHON:-python3}" "$root/test/bench/torch_decode.py" 2)"
else
  echo "  torch: not measured, ${PYTHON:-python3} has no packages torch and transformers; PYTHON=... names one that has"
fi

# Measures both tokenizers in one run, on one core each. Without the package, prints only a note.
shared=${ESPALIER_SHARED:-$root/../shared}
python=${PYTHON:-python3}
if [ ! -d "$shared/data" ]; then
  echo "tokenizers: not measured, the corpus $shared/data is absent"
elif ! "$python" -c 'import tokenizers' 2>/dev/null; then
  echo "tokenizers: not measured, $python has no package tokenizers; name one that has: PYTHON=... ./dev bench"
else
  echo "GPT-2 tokenization (bounds: 20 MB/s and twice the package):"
  "$python" "$root/test/runtime/tokenizer/bench_tokenizers.py" "$espalier" "$shared/data" | sed 's/^/  /'
fi

# The token file is sparse, because building the index reads lengths and not tokens.
python3 - "$scratch/billion" <<'PYTHON'
import array, os, struct, sys
documents, length = 1_000_000, 1000
with open(sys.argv[1] + ".idx", "wb") as file:
    file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
    file.write(array.array("i", [length]) * documents)
    file.write(array.array("q", range(0, 2 * length * documents, 2 * length)))
    file.write(array.array("q", range(documents + 1)))
with open(sys.argv[1] + ".bin", "wb") as file:
    os.truncate(file.fileno(), 2 * length * documents)
PYTHON
/usr/bin/time -f '%e %M' -o "$scratch/index.time" \
  "$espalier" data index "$scratch/billion" --seq-length 1024 --split 1,0,0 --cache "$scratch/cache" >"$scratch/index.out"
awk -v out="$(cut -d' ' -f1 "$scratch/index.out")" \
  '{ printf "index of 1 billion tokens in 1 million documents: %s samples, %.2f s, %.0f MB\n", out, $1, $2 * 1024 / 1e6 }' \
  "$scratch/index.time"
