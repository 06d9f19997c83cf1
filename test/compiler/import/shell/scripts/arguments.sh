# argument: --tp
# argument: 4
# argument: --name=a b
# argument: -v
# argument: file1
# argument: file2
TP=1
FILES=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --tp) TP="$2"; shift 2 ;;
    --name=*) NAME="${1#*=}"; shift ;;
    -v | --verbose) VERBOSE=1; shift ;;
    -*) echo "unknown $1" >&2; exit 1 ;;
    *) FILES+=("$1"); shift ;;
  esac
done
set -- "${FILES[@]}" more "last one"
torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --name "$NAME" ${VERBOSE:+--verbose} "$#" "$1" "${@:2}" "${*:3:1}" "$*" ${#}
