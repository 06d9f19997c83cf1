NODES=1
while getopts "n:h" option; do
  case $option in
    n) NODES=$OPTARG ;;
    h) echo help; exit 0 ;;
  esac
done
shift $((OPTIND - 1)) 2>/dev/null
torchrun --nnodes $NODES pretrain_gpt.py --seed 1 "$@"
