#!/usr/bin/env bash
# Conversions against a live transformers: what it saves comes in and goes out again, and it loses what it lost before.
# Usage: oracles.sh BUILD. Makes build-oracles, a Python environment of its own, on the first call.
set -euo pipefail
build=$(realpath "$1")
root=$(realpath "$(dirname "$0")/../..")
python=$root/build-oracles/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ ! -x "$python" ]; then
  python3 -m venv "$root/build-oracles"
  if ! "$python" -m pip install --quiet "torch>=1.13" "transformers>=4.44" "numpy<3" safetensors; then
    rm -rf "$root/build-oracles"
    echo "skipped: torch and transformers cannot be installed here"
    exit 0
  fi
fi
espalier=$build/bin/espalier
for model in gpt2 llama llama_tied; do
  cd "$scratch"
  "$python" "$root/test/golden/transformers_reference.py" --write $model.hf $model
  "$espalier" import-hf $model.hf -o $model.yaml 2>/dev/null
  "$espalier" convert $model.hf $model.ours --to espalier --model $model.yaml
  "$espalier" convert $model.ours $model.back --to hf --model $model.yaml --reference $model.hf
  diff -r $model.hf $model.back
  "$espalier" convert $model.ours $model.bins --to hf --model $model.yaml --format bin --shards 3
  "$espalier" convert $model.ours $model.megatron --to megatron --model $model.yaml --tp 2 --pp 2
  "$espalier" convert $model.megatron $model.third --to espalier --model $model.yaml
  "$espalier" convert $model.third $model.tensors --to hf --model $model.yaml --shards 2
  for form in bins tensors; do
    "$python" "$root/test/golden/transformers_reference.py" --check $model.$form $model
  done
done
# Finetuned from each form, by ranks and by transformers; the numbers of FinetunesTheSame, made anew.
"$python" "$root/test/golden/transformers_reference.py" --agrees
"$build/test/bin/transformers_test" --gtest_filter='*FinetunesTheSame*'
