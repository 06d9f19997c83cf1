#!/usr/bin/env bash
# `./dev demo`: compiles a 13B model for 32 devices. Then trains a small model, split over eight ranks and unsplit, and
# compares the losses. Usage: demo.sh BUILD
set -euo pipefail
build=${1:?usage: demo.sh BUILD}
configs="$(dirname "$0")/../../configs"
here=$(dirname "$0")
espalier="$build/bin/espalier"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
steps=60

heading() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# Prints a command as a user would type it, then runs it.
show() {
  printf '\n$ %s\n' "$(sed "s#$build/bin/##; s#$scratch/##g; s#$configs#configs#" <<<"$*")"
  "$@" 2>&1 | sed "s#$scratch/##g"
}

heading "1. GPT-2 13B, 40 layers, for 32 devices: dp 4 · tp 8"
begin=$(date +%s.%N)
show "$espalier" compile "$configs/gpt2_13b.yaml" -o "$scratch/gpt2_13b.plan"
end=$(date +%s.%N)
size=$(stat -c %s "$scratch/gpt2_13b.plan")
awk "BEGIN { printf \"compiled in %.1f s into a plan of %.2f MB\n\", $end - $begin, $size / 1e6 }"
show "$espalier" inspect "$scratch/gpt2_13b.plan"

heading "2. A small GPT (4 layers, hidden 64, bytes as tokens) on the license texts of Debian"
"$here/license_text.sh" "$scratch/text.txt"
echo "$(stat -c %s "$scratch/text.txt") bytes of text, $steps steps of 32 samples of 64 bytes"

heading "   split over eight ranks: dp 2 · tp 2 · pp 2, four micro-batches, ZeRO-1"
show "$espalier" compile "$configs/tiny_gpt.yaml" -o "$scratch/split.plan"
show "$espalier" run "$scratch/split.plan" --data "$scratch/text.txt" --steps $steps --metrics "$scratch/split.jsonl" |
  awk '!/^step/ || /^step +(1|[0-9]*0)\//'

heading "   the same model on one rank, eight micro-batches"
show "$espalier" compile "$configs/tiny_gpt.yaml" -o "$scratch/unsplit.plan" --cluster cpu_local:1x1 \
  --set parallel_config.data_parallel=1 --set parallel_config.model_parallel=1 \
  --set parallel_config.pipeline_stage=1 --set runner_config.gradient_accumulation_steps=8
show "$espalier" run "$scratch/unsplit.plan" --data "$scratch/text.txt" --steps $steps \
  --metrics "$scratch/unsplit.jsonl" | awk '!/^step/ || /^step +(1|[0-9]*0)\//'

heading "3. Are they the same training run?"
"$here/compare_losses.py" "$scratch/split.jsonl" "$scratch/unsplit.jsonl" --names "eight ranks" "one rank" --show 5 ||
  { echo "the split model does not compute what the unsplit model computes" >&2; exit 1; }
awk -F'[:,]' 'NR == 1 { first = $4 } { last = $4 }
  END { printf "the loss fell from %.2f to %.2f\n", first, last; exit !(last < first) }' "$scratch/split.jsonl"
