#!/usr/bin/env bash
# Compares published runs of Qwen3's mixtures of experts with the predictions of `espalier plan` for the plans of the
# rows.
# Usage: published_experts.sh BUILD megatron_bridge_perf.csv
#
# The rows do not give recompute (the planner chooses), ZeRO (1, the distributed optimizer) and capacity (1, because
# their experts were balanced). Run files do not support formats narrower than BF16. Their rows are priced as BF16, and
# again with the speedup that `bench plans` uses for dense models, 1.65 for products and none for attention.
set -euo pipefail
build=${1:?usage: published_experts.sh BUILD FILE.csv} table=${2:?usage: published_experts.sh BUILD FILE.csv}
root="$(dirname "$0")/../.."

# Returns the machine of a row; constants are those of tools/published/machines.cpp.
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

# Returns the layers of each chunk. As in Megatron, embedding and loss count as one layer each if the layers are then
# divisible.
chunksOf() {
  awk -v layers="$1" -v chunks="$2" 'BEGIN {
    counts = (layers % chunks == 0)
    for (i = 0; i < chunks; ++i) {
      each = counts ? layers / chunks : (layers + 2) / chunks - (i == 0) - (i + 1 == chunks)
      printf "%s%d", i ? ", " : "[", each
    }
    print "]" }'
}

predict() { # CONFIG CLUSTER BATCH PIN: prints the step seconds or the error
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
    # If there are more expert ranks than replicas, experts are not sharded and ep includes the tensor ranks.
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
