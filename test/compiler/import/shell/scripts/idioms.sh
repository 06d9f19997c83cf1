set -u
ARGS=()
ARGS[${#ARGS[@]}]="--first"
ARGS[${#ARGS[@]}]=1
KEYS=(lr min-lr)
VALUES=(1e-4 1e-5)
for i in "${!KEYS[@]}"; do ARGS+=(--"${KEYS[$i]}" "${VALUES[i]}"); done
EMPTY=()
TEXT="x"
TEXT+="y" TEXT+=$TEXT
copy=("${ARGS[@]}")
append() { local -a values=("$@"); local last=${values[-1]} joined="${values[*]:0:2}"; ARGS+=("$last/$joined"); }
append a b c
flag_if() { if [[ "${2:-}" == true || "${2:-}" == 1 ]]; then ARGS+=("--$1"); fi; }
flag_if overlap true
flag_if offload "${OFFLOAD:-false}"
flag_if empty
[[ -n "${DEBUG:-}" ]] && ARGS+=(--debug)
LIST="1,2,3"
IFS=',' read -r -a NUMBERS <<< "$LIST"
SUM=0
for n in "${NUMBERS[@]}"; do SUM=$((SUM + n)); done
FILE=/a/b.tar.gz BASE=${FILE##*/}
: "${NAME:=${BASE%%.*}-$SUM}"
torchrun pretrain_gpt.py "${ARGS[@]}" ${EMPTY[@]+"${EMPTY[@]}"} "${copy[@]:2}" --text $TEXT --name "$NAME" --n ${#NUMBERS[@]} \
  --exp $(( SUM > 5 ? SUM * 10 : 0 ))e-${#LIST} --in ${LIST//,/ } --mix a"$TEXT"'$TEXT'b
