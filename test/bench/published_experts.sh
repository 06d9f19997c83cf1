#!/usr/bin/env bash
# Published runs of Qwen3's mixtures of experts against what `espalier plan` predicts for the plan that each row names.
# Usage: published_experts.sh BUILD megatron_bridge_perf.csv
#
# What the rows do not say: recompute (the planner's choice), ZeRO (1, the distributed optimizer) and capacity (1: their
# experts were force-balanced). Narrower formats than BF16 have no model in run files: their rows are priced as BF16 and
# once more with the gain that `bench plans` takes for dense models, 1.65 on products and none on attention.
set -euo pipefail
build=${1:?usage: published_experts.sh BUILD FILE.csv} table=${2:?usage: published_experts.sh BUILD FILE.csv}
root="$(dirname "$0")/../.."

# The machine of a row; constants as in tools/published/machines.cpp.
clusterOf() {
  local gpu=$1 devices=$2 gain=$3 base perHost peak attention more=""
  case $gpu in
    DGX-H100) base=h100_dgx perHost=8 peak=9.89e14 attention=0.45 ;;
    DGX-GB200) base=gb200_nvl72 perHost=64 peak=2.5e15 attention=0.26 ;;
    DGX-GB300) base=gb200_nvl72 perHost=64 peak=2.5e15 attention=0.312
               more="memory_bytes: 279GB, matmul_efficiency: 0.83, network: {bandwidth: 9.0e10, latency: 8.0e-6}" ;;
    DGX-B200) base=gb200_nvl72 perHost=8 peak=2.25e15 attention=0.385
              more="memory_bytes: 180GB, matmul_efficiency: 0.566" ;;
    DGX-B300) base=gb200_nvl72 perHost=8 peak=2.25e15 attention=0.312
              more="memory_bytes: 269GB, matmul_efficiency: 0.83, network: {bandwidth: 9.0e10, latency: 8.0e-6}" ;;
  esac
  ((devices >= perHost)) || perHost=$devices
  awk -v base="$base" -v hosts=$((devices / perHost)) -v per=$perHost -v peak="$peak" -v attention="$attention" \
    -v gain="$gain" -v more="${more:+, $more}" \
    'BEGIN { printf "{base: %s, hosts: %d, devices_per_host: %d, peak_flops: {bf16: %g}, attention_efficiency: %g%s}",
             base, hosts, per, peak * gain, attention / gain, more }'
}

# Layers of each chunk: embedding and loss count as one each where that divides, as in Megatron.
chunksOf() {
  awk -v layers="$1" -v chunks="$2" 'BEGIN {
    counts = (layers % chunks == 0)
    for (i = 0; i < chunks; ++i) {
      each = counts ? layers / chunks : (layers + 2) / chunks - (i == 0) - (i + 1 == chunks)
      printf "%s%d", i ? ", " : "[", each
    }
    print "]" }'
}

predict() { # CONFIG CLUSTER BATCH PIN: step seconds, or why there are none
  local answer
  answer=$("$build/bin/espalier" plan "$root/configs/$1.yaml" --set "cluster=$2" --set "planner.global_batch=$3" \
           --set moe_config.capacity_factor=1 --set "planner.pin=$4" --json 2>&1) &&
    sed -n 's/.*"step_seconds": \([0-9.e+-]*\).*/\1/p' <<<"$answer" | head -1 ||
    grep -o 'error: .*\|needs .* have [^(]*' <<<"$answer" | head -1
}

echo "line  model  devices  format  tp  pp  vpp  ep  dp  micro-batch  batch  measured s  as BF16 s  error  with gain s  error"
awk -F, -v OFS='|' '$1 ~ /^Qwen3/ { print NR, $1, $10, $11, $12, $13, $14, $15, $17, $18, $21, $22, $24 }' "$table" |
  while IFS='|' read -r line model gpu devices format tp pp vpp ep dp micro batch seconds; do
    config=qwen3_30b_a3b layers=48 experts=$ep
    case $model in *235B*) config=qwen3_235b_a22b layers=94 ;; esac
    # With more experts' ranks than replicas an expert is whole and lies on tensor ranks, too.
    replicas=$((devices / tp / pp)) whole=""
    ((replicas % ep == 0)) || { ep=$((ep / tp)) whole=", expert_tensor_parallel: false"; }
    pin="{tp: $tp, pp: $pp, ep: $ep, dp: $((replicas / ep)), micro_batch_size: $micro, zero: 1$whole"
    pin="$pin, offload_optimizer: false, offload_activations: false"
    ((tp == 1)) || pin="$pin, sequence_parallel: true"
    ((pp == 1)) || pin="$pin, stage_layers: $(chunksOf $layers $((pp * vpp)))"
    ((vpp == 1)) && pin="$pin, schedule: 1f1b}" || pin="$pin, schedule: interleaved, virtual_stages: $vpp}"
    plain=$(predict $config "$(clusterOf "$gpu" "$devices" 1)" "$batch" "$pin")
    gained=""
    [[ $format == BF16 ]] || gained=$(predict $config "$(clusterOf "$gpu" "$devices" 1.65)" "$batch" "$pin")
    awk -v row="$line  ${model#Qwen3_}  $devices ${gpu#DGX-}  $format  $tp  $pp  $vpp  $experts  $dp  $micro  $batch" \
      -v measured="$seconds" -v plain="$plain" -v gained="$gained" '
      function cell(value) { return value + 0 > 0 ? sprintf("%.2f  %+.0f %%", value, 100 * (value / measured - 1)) : value }
      BEGIN { printf "%s  %.2f  %s  %s\n", row, measured, cell(plain), cell(gained) }'
  done
