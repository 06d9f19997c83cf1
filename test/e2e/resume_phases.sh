# resume_phases.sh RUN.yaml FOLDER [OPTION ...]: compiles, then resumes from the dump of every phase and compares the
# plans as text. The last phase has all that machine code is made of, so its plan is compared with its code.
set -e
run=$1 folder=$2
shift 2
rm -rf "$folder/each"
espalier compile "$run" -o "$folder/each.plan" --dump-phases "$folder/each" "$@"
resumed=0
for dump in "$folder"/each/*.mlir; do
  phase=${dump##*/} phase=${phase#*.} phase=${phase%.mlir}
  espalier compile "$run" --compile-from "$phase" --ir "$dump" --compile-to plan "$@" | cmp - "$folder/each/5.plan.txtpb"
  resumed=$((resumed + 1))
done
test "$resumed" -eq 5
espalier compile "$run" -o "$folder/resumed.plan" --compile-from "$phase" --ir "$dump" "$@"
cmp "$folder/each.plan" "$folder/resumed.plan"
