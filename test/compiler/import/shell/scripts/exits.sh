# argument: train
if [ "$1" = "eval" ]; then
  torchrun eval.py --x 1
  exit 0
fi
usage() { echo usage; exit 1; }
[ $# -ge 1 ] || usage
( exit 3 ) || A=failed
f() { return 5; A=wrong; }
f
B=after
torchrun first.py --one
torchrun pretrain_gpt.py $A $B
exit 0
torchrun never.py
