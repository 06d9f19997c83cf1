#!/usr/bin/env bash
# Runs every libFuzzer program of a build folder from its seeds, one program per core.
# Usage: run.sh BUILD [SECONDS] [NAME ...]
# A failing input is saved in BUILD/fuzz/NAME. After the bug is fixed, move the input to test/fuzz/seeds/NAME, which a
# test reads.
set -euo pipefail
build=$(realpath "$1")
seconds=${2:-60}
cd "$(dirname "$0")/../.."
# LLVM's allocators and protobuf's library are built without sanitizers.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allow_user_poisoning=0:detect_container_overflow=0}

# Prints folders of the repository that also serve as seeds.
more_seeds_of() {
  case $1 in
    args) echo test/e2e/inputs ;;
    cluster_file) echo configs/clusters ;;
    model_file) echo configs/models ;;
    run_file) echo configs ;;
  esac
}

fuzz() { # NAME: runs one program and prints one line with the result
  local name=$1 corpus=$build/fuzz/$1
  mkdir -p "$corpus/inputs"
  for seeds in "test/fuzz/seeds/$name" $(more_seeds_of "$name"); do
    [ ! -d "$seeds" ] || find "$seeds" -maxdepth 1 -type f -exec cp -n {} "$corpus/inputs" \;
  done
  if "$build/bin/fuzz_$name" "$corpus/inputs" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=3000 \
    -artifact_prefix="$corpus/" >"$corpus/log" 2>&1; then
    echo "$name: clean, $(grep -o 'Done [0-9]* runs' "$corpus/log" | cut -d' ' -f2) inputs in ${seconds} s"
  else
    echo "$name: failed; $corpus/log ends:"
    tail -n 15 "$corpus/log"
    return 1
  fi
}
export build seconds
export -f fuzz more_seeds_of

names=("${@:3}")
[ ${#names[@]} -gt 0 ] || names=($(cd "$build/bin" && ls -d fuzz_* | sed 's/^fuzz_//'))
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
