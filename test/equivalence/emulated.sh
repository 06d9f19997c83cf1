#!/usr/bin/env bash
# Runs every plan of the equivalence suite on the emulated device, then splits with ranks as processes and deliberate
# faults, then the command's tests. Prints the rows whose training differs from the CPU. Usage: emulated.sh BUILD
# [FILTER]
set -uo pipefail
build=$1 filter=${2:-*} status=0
ESPALIER_EMULATED_ALL=1 "$build"/test/bin/emulated_test --gtest_brief=1 --gtest_filter="$filter" 2>&1 |
  grep -v '^espalier emulator' || status=1
"$build"/test/bin/emulated_processes_test --gtest_brief=1 || status=1
lit=$(llvm-config-19 --prefix)/build/utils/lit/lit.py
python3 "$lit" -sv --filter 'e2e/emulated' "$build/test" || status=1
exit $status
