#!/usr/bin/env bash
# Trains configs/gpt3_857m.yaml, tp 2 · pp 2, on CPUs for three steps: by four threads, by four processes and, with
# mpirun, on two hosts, which are network namespaces. The losses must be equal. Needs about 10 GB and, on two cores, ten
# minutes. Usage: gpt3_857m.sh BUILD [OPTION OF compile ...]
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
PATH=$(realpath "${1:?usage: gpt3_857m.sh BUILD}")/bin:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ESPALIER_TWO_HOSTS_SECONDS=${ESPALIER_TWO_HOSTS_SECONDS:-7200}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_tcp_if_include=10.0.0.0/24 OMPI_MCA_oob_tcp_if_include=10.0.0.0/24

# A rank needs more memory than cpu_local grants, which is sized for a laptop.
sed 's/^memory_bytes: 2GB/memory_bytes: 5GB/; s/^name: cpu_local/name: cpu_large/' "$root/configs/clusters/cpu_local.yaml" \
  >"$scratch/cpu_large.yaml"
espalier compile "$root/configs/gpt3_857m.yaml" -o "$scratch/857m.plan" --cluster "$scratch/cpu_large.yaml:1x4" \
  --set parallel_config.micro_batch_num=2 --set runner_config.batch_size=1 \
  --set runner_wrapper.scale_sense.loss_scale_value=1024 "${@:2}"
steps=(run "$scratch/857m.plan" --data mock --steps 3)
espalier "${steps[@]}" --metrics "$scratch/threads.jsonl"
espalier "${steps[@]}" --processes --metrics "$scratch/processes.jsonl"
python3 "$root/test/e2e/same_metrics.py" "$scratch/threads.jsonl" "$scratch/processes.jsonl"
printf '10.0.0.1 slots=2\n10.0.0.2 slots=2\n' >"$scratch/hosts"
"$root/test/e2e/two_hosts.py" espalier launch --hosts "$scratch/hosts" --ssh '{agent}' -- "${steps[@]}" \
  --metrics "$scratch/hosts.jsonl"
python3 "$root/test/e2e/same_metrics.py" "$scratch/threads.jsonl" "$scratch/hosts.jsonl"
echo "equal by threads, by processes and on two hosts"
