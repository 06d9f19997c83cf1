#!/usr/bin/env bash
# Tests conversions against an installed transformers: weights that it saves are converted to Espalier and back, and
# each converted model must have the recorded loss. Usage: oracles.sh BUILD. The first call creates the Python
# environment build-oracles.
set -euo pipefail
build=$(realpath "$1")
root=$(realpath "$(dirname "$0")/../..")
python=$root/build-oracles/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ ! -x "$python" ]; then
  python3 -m venv "$root/build-oracles"
  if ! "$python" -m pip install --quiet "torch>=1.13" "transformers>=4.44" "peft>=0.11" "numpy<3" safetensors openai \
    pyarrow pytest pyyaml "lm_eval[hf,api]"; then
    rm -rf "$root/build-oracles"
    echo "skipped: torch and transformers cannot be installed here"
    exit 0
  fi
fi
espalier=$build/bin/espalier
ranks_for() { # KEY FILE: 2 if ranks can split what the key of the run file counts, else 1
  [ $(($(grep -oP "^ *$1: \K\d+" "$2" || echo 2) % 2)) = 0 ] && echo 2 || echo 1
}
generates() { # NAME: greedily what a live transformers says, under one rank, and under two stages with tensor ranks
  "$python" "$root/test/golden/generation_reference.py" --write "$1".long "$1"
  "$espalier" import-hf "$1".long -o "$1".long.yaml 2>/dev/null
  "$espalier" convert "$1".long "$1".weights --to espalier --model "$1".long.yaml
  for split in 1x1 "$(ranks_for n_kv_heads "$1".long.yaml)x2"; do
    "$espalier" compile "$1".long.yaml -o "$1".plan --set run_mode=predict --set runner_config.batch_size=3 --set parallel.parallel_mode=1 \
      --set parallel_config.model_parallel=${split%x*} --set parallel_config.pipeline_stage=${split#*x} \
      --cluster cpu_local:1x$((${split%x*} * ${split#*x}))
    "$python" "$root/test/golden/generation_reference.py" --prompts | sed 's/.*/--tokens "&"/' |
      xargs "$espalier" generate "$1".plan --checkpoint "$1".weights --max-tokens 64 |
      "$python" "$root/test/golden/generation_reference.py" --check "$1"
  done
}
# Tokens and masks of conversations are those that chats.jsonl records (docs/fine_tuning.md).
"$python" "$root/test/golden/tokenizers/make_chat_cases.py" --check
for model in gpt2 llama llama_tied llama_wide mistral phi3 qwen2 qwen3 mixtral qwen3_moe llama31 llama_linear qwen2_yarn \
  mistral_window phi4_mini gpt_neox smollm3 gemma2 gemma3 olmo2 stablelm qwen2_moe glm4_moe glm4_moe_qk_norm \
  deepseek_v3 deepseek_v3_halves deepseek_v3_full_q deepseek_v3_experts deepseek_v3_experts_full_q gpt_oss; do
  cd "$scratch"
  generates $model
  "$python" "$root/test/golden/transformers_reference.py" --write $model.hf $model
  "$espalier" import-hf $model.hf -o $model.yaml 2>/dev/null
  "$espalier" convert $model.hf $model.ours --to espalier --model $model.yaml
  "$espalier" convert $model.ours $model.back --to hf --model $model.yaml --reference $model.hf
  diff -r $model.hf $model.back
  "$espalier" convert $model.ours $model.bins --to hf --model $model.yaml --format bin --shards 3
  third=$model.ours
  case $model in
  gemma2 | gemma3 | gpt_neox | gpt_oss | olmo2) ;; # Megatron has no such block
  *)
    third=$model.third
    "$espalier" convert $model.ours $model.megatron --to megatron --model $model.yaml \
      --tp "$(ranks_for n_kv_heads $model.yaml)" --pp "$(ranks_for num_layers $model.yaml)"
    "$espalier" convert $model.megatron $third --to espalier --model $model.yaml
    ;;
  esac
  "$espalier" convert $third $model.tensors --to hf --model $model.yaml --shards 2
  for form in bins tensors; do
    "$python" "$root/test/golden/transformers_reference.py" --check $model.$form $model
  done
done
# Options of config.json that change the mathematics.
for model in llama_biases qwen3_biases olmo2_biases gemma2_biases stablelm_biases gpt_neox_sequential gpt_neox_yarn \
  mixtral_yarn qwen3_moe_biases qwen2_moe_no_biases glm4_moe_no_biases; do
  cd "$scratch"
  generates $model
done
# peft's adapters are converted to Espalier and back, and peft loads them.
adapters() { # NAME RANK ALPHA MODULES
  printf 'base_config: %s.yaml\nmodel:\n  model_config:\n    pet_config: {pet_type: lora, lora_rank: %s, lora_alpha: %s, lora_dropout: 0, target_modules: %s}\n' \
    "$1" "$2" "$3" "$4" > "$1".lora.yaml
  "$python" "$root/test/golden/peft_reference.py" --write "$1".adapter "$1"
  "$espalier" convert "$1".adapter "$1".joined --to espalier --model "$1".lora.yaml --base "$1".hf
  "$espalier" convert "$1".joined "$1".out --to peft --model "$1".lora.yaml
  cmp "$1".adapter/adapter_model.safetensors "$1".out/adapter_model.safetensors
  "$python" "$root/test/golden/peft_reference.py" --check "$1".out "$1"
}
adapters llama 3 6 '[q_proj, v_proj, o_proj, down_proj]'
adapters gpt2 2 5 '[c_attn, mlp.c_proj]'
adapters deepseek_v3 3 6 '[q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj]'
# transformers loads the exported folders and generates the same tokens as the plan (docs/from_huggingface.md).
"$python" "$root/test/golden/exported_generation.py" "$espalier" "$root" "$scratch/exported"
# PyTorch updates the parameters of a reference model and must reproduce the recorded losses of SGD and Muon.
"$python" "$root/test/golden/optimizer_reference.py" --check
# A command of docs/cluster.md with the real torchrun.
"$espalier" compile "$root/configs/tiny_gpt.yaml" -o "$scratch/ranks.plan"
"$root/build-oracles/bin/torchrun" --nproc-per-node 8 --no-python "$espalier" run "$scratch/ranks.plan" --data mock \
  --steps 2 | grep "done after step 2 of 2"
# Reads a parquet file as in docs/from_megatron.md: rows in order, and an error for a missing column.
"$python" "$root/test/golden/to_jsonl_oracle.py" "$root/tools/to_jsonl.py" "$scratch/tables"
# A config.json without a key means the same to transformers and to the model files.
"$python" "$root/test/golden/config_defaults.py"
# transformers finetunes each model and must reproduce the recorded losses; then ranks finetune from each weight format.
"$python" "$root/test/golden/transformers_reference.py" --agrees
"$build/test/bin/transformers_test" --gtest_filter='*Finetuning*'
# Model files from the code of transformers, without the shipped files of these families.
ESPALIER=$espalier PYTHONPATH=$root/python "$python" -m pytest -q -p no:cacheprovider "$root/python/tests/test_trace.py"
cd "$scratch"
"$espalier" compile "$root/configs/tiny_gpt.yaml" -o train.plan --cluster cpu_local:1x1 --set parallel_config.data_parallel=1 \
  --set parallel_config.model_parallel=1 --set parallel_config.pipeline_stage=1
"$espalier" run train.plan --data "$root/README.md" --steps 1 --checkpoint run
"$espalier" compile "$root/configs/tiny_gpt.yaml" -o say.plan --cluster cpu_local:1x1 --set run_mode=predict \
  --set parallel_config.data_parallel=1 --set parallel_config.model_parallel=1 --set parallel_config.pipeline_stage=1
PATH="$build/bin:$PATH" "$python" "$root/test/e2e/serve.py" say.plan run --openai
# lm-evaluation-harness measures a model over HTTP as it does with transformers.
"$python" "$root/test/golden/lm_eval_oracle.py" "$espalier" "$scratch/lm_eval"
