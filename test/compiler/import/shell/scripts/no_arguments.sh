SIZE=${1:-7b}
OUT=${2:-"out dir"}
TP=2
while [ $# -gt 0 ]; do
  case $1 in --tp) TP=$2; shift;; esac
  shift
done
for extra in "$@"; do TP=9; done
for extra; do TP=8; done
X=$3
if [ $# -ge 1 ]; then SIZE=given; fi
torchrun pretrain_gpt.py --size $SIZE --save "$OUT" --tp $TP --rest "$@" $@ ${X:-none} $#
