#!/usr/bin/env bash
# Packs everything that test/gpu/run needs on a machine with a GPU: plans and stripped programs. Writes BUILD/gpu-kit
# and the same as one file, BUILD/gpu-kit.tar.gz. Usage: pack.sh BUILD
# ESPALIER_GPU_NCCL=FILE adds a libnccl.so.2 with its device code for capability 9.0. From version 2.30 on, NCCL lets
# several ranks share a device. The machine's own NCCL may be older.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. test/gpu/rows.sh
build=${1:-build}
kit=$PWD/$build/gpu-kit
plans=$kit/plans
unfused= # comma-separated epilogues that kernels replace in these plans

# compile_row TARGET NAME CONFIG KEY=VALUE ...
compile_row() {
  local target=$1 name=$2 config=$3 set=(--set lr_schedule.total_steps=100000) word; shift 3
  for word in "$@" ${unfused:+"context.unfused_epilogues=[$unfused]"}; do set+=(--set "$word"); done
  "$build"/bin/espalier compile "$config" --target "$target" -o "$plans/$name.$target.plan" "${set[@]}" >/dev/null
}

# Plans of GPT-2 124M for one micro-batch of 4 samples, whose gradients PyTorch computes, too.
gradient_plan() { # TYPE MASTER_WEIGHTS
  compile_row cuda gradients_$1 test/gpu/gpt2_124m.yaml runner_config.batch_size=4 planner.pin.micro_batches=1 \
    model.model_config.param_init_type=$1 model.model_config.compute_dtype=$1 optimizer.master_weights=$2
}

# A dataset of exactly 4 samples of 1,024 tokens.
tokens() {
  python3 - <<'PYTHON' > "$kit/text.txt" && "$build"/bin/espalier data tokenize "$kit/text.txt" --output-prefix "$kit/data" \
    --tokenizer bytes > /dev/null
import random
random.seed(5)
words = ["".join(random.choice("etaoinshrdlucmfw") for _ in range(random.randint(1, 9))) for _ in range(3000)]
print(end=" ".join(random.choice(words) for _ in range(4097))[:4097])
PYTHON
}

compile_plans() {
  local words name target
  local key=(${unfused:+--set "context.unfused_epilogues=[$unfused]"})
  mkdir -p "$plans/kernels"
  while read -r words; do compile_row cpu $words && compile_row cuda $words || return 1; done < <(rows)
  while read -r words; do compile_row cuda $words || return 1; done < <(comm_rows)
  for target in cpu cuda; do compile_row $target say configs/tiny_gpt.yaml $one run_mode=predict || return 1; done
  gradient_plan float32 False && gradient_plan bfloat16 True || return 1
  for name in gpt2_124m gpt_1b3; do
    "$build"/bin/espalier compile test/gpu/$name.yaml --target cuda -o "$plans/$name.cuda.plan" \
      --emit-kernels "$plans/kernels/$name" "${key[@]}" >/dev/null || return 1
    "$build"/bin/espalier plan test/gpu/$name.yaml --target cuda "${key[@]}" --json > "$plans/$name.predicted.json" || return 1
  done
  "$build"/bin/espalier plan configs/tiny_gpt.yaml --target cuda "${key[@]}" --json > "$plans/gpt_f32.predicted.json" || return 1
  for name in gpt2_124m gpt_1b3 gpt_f32; do
    "$build"/bin/espalier bench roofline "$plans/$name.cuda.plan" --cluster h200 --json > "$plans/$name.roofline.json" || return 1
  done
}

programs() {
  mkdir -p "$kit"/{bin,lib,emulator}
  cp "$build"/bin/espalier "$build"/test/gpu/device_{check,comm,test} "$kit/bin/" || return 1
  cp "$build"/lib/lib{espalier_format,espalier_cuda}.so "$kit/lib/" || return 1
  cp -L "$build"/emulator/lib{cuda.so.1,cublasLt.so.13,nccl.so.2} "$kit/emulator/" || return 1
  # Copies all libraries except the C library and our own.
  ldd "$build"/bin/espalier "$build"/lib/libespalier_cuda.so | awk '$2 == "=>" && $3 ~ /^\/(usr\/)?lib/ {print $3}' |
    grep -Ev '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | sort -u | xargs -I{} cp -L {} "$kit/lib/"
  strip "$kit"/bin/* "$kit"/lib/* "$kit"/emulator/* || return 1
}

nccl() {
  [ -n "${ESPALIER_GPU_NCCL:-}" ] || { echo "no NCCL is carried: name one of 2.30 or newer by ESPALIER_GPU_NCCL"; return 0; }
  mkdir -p "$kit/nccl" || return 1
  python3 test/gpu/keep_device_code.py "$ESPALIER_GPU_NCCL" 90 "$kit/nccl/libnccl.so.2" &&
    strip "$kit/nccl/libnccl.so.2"
}

rm -rf "$kit" "$kit.tar.gz"
programs && compile_plans && tokens && nccl || exit 1
# Plans for a library that lacks an epilogue, and for measuring the benefit of epilogues.
plans=$kit/unfused unfused=bias,bias_add,add,bias_gelu,gelu_gradient,bias_gradient
compile_plans || exit 1
# The oldest version of the C library that can run the programs.
objdump -T "$kit"/bin/* "$kit"/lib/* | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1 > "$kit/glibc"
tar -C "${kit%/*}" -czf "$kit.tar.gz" "${kit##*/}" && du -m "$kit.tar.gz"
