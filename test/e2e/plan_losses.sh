#!/usr/bin/env bash
# plan_losses.sh FOLDER NAME DEVICES [section.key=value ...]: trains the tiny GPT for five steps of eight samples, with
# dropout, an odd number of layers, and a vocabulary that is not a multiple of tp. Writes metrics to FOLDER/NAME.jsonl.
set -euo pipefail
folder=$1 name=$2 devices=$3
shift 3
sets=()
for value in model.model_config.{vocab_size=301,num_layers=5,hidden_dropout_rate=0.1,attention_dropout_rate=0.1} \
  runner_config.batch_size=2 "$@"; do
  sets+=(--set "$value")
done
espalier compile "$(dirname "$0")/../../configs/tiny_gpt.yaml" -o "$folder/$name.plan" \
  --cluster "cpu_local:1x$devices" "${sets[@]}"
espalier run "$folder/$name.plan" --data "$folder/text" --steps 5 --threads 1 --metrics "$folder/$name.jsonl" >/dev/null
