# argument: moe
if [ "$1" = moe ]; then
  model() { M=(--num-experts 8); dense=0; }
else
  model() { M=(--ffn-hidden-size 4096); }
fi
declare -A LAYERS=([moe]=16 [dense]=32)
model
pick() {
  case $1 in
    a | b) while :; do [ "$2" ] && return 3; break; done; echo none ;;
  esac
  return 0
}
pick a x && R=zero || R=nonzero
pick a "" && R+=zero
for t in "$@" dense; do
  N+="${N:+,}${LAYERS[$t]}"
done
torchrun pretrain_gpt.py "${M[@]}" --layers $N --r $R --first ${N%,*} --last ${N##*,} ${dense:+--sparse}
