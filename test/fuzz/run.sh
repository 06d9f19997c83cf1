#!/usr/bin/env bash
# Runs every libFuzzer program of a build folder, one after the other, from its seeds. Usage: run.sh BUILD [SECONDS] [NAME]
# An input that one fails on stays in BUILD/fuzz/NAME: mended, it belongs among the seeds, which the tests read.
set -euo pipefail
build=$(realpath "$1")
seconds=${2:-60}
only=${3:-}
cd "$(dirname "$0")/../.."
# LLVM's allocators and protobuf's library are built without sanitizers.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allow_user_poisoning=0:detect_container_overflow=0}

seeds_of() {
  case $1 in
    args) echo test/e2e/inputs ;;
    cluster_file) echo configs/clusters ;;
    model_file) echo configs/models ;;
    run_file) echo configs ;;
    data_*) echo "test/fuzz/data/seeds/${1#data_}" ;;
    *) echo "test/fuzz/seeds/$1" ;;
  esac
}

failed=()
for program in "$build"/bin/fuzz_*; do
  name=$(basename "$program")
  name=${name#fuzz_}
  [ -z "$only" ] || [ "$name" = "$only" ] || continue
  corpus=$build/fuzz/$name
  mkdir -p "$corpus/inputs"
  seeds=$(seeds_of "$name")
  [ ! -d "$seeds" ] || find "$seeds" -maxdepth 1 -type f -exec cp -n {} "$corpus/inputs" \;
  if "$program" "$corpus/inputs" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=3000 \
    -artifact_prefix="$corpus/" >"$corpus/log" 2>&1; then
    echo "$name: clean, $(grep -o 'Done [0-9]* runs' "$corpus/log" | cut -d' ' -f2) inputs in ${seconds} s"
  else
    failed+=("$name")
    echo "$name: failed; $corpus/log ends:"
    tail -n 15 "$corpus/log"
  fi
done
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
