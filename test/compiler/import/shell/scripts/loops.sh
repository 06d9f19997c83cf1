args=()
for x in a "b c" d; do args+=("<$x>"); done
for n in 1 2 3 4 5 6; do
  if [ $n -eq 2 ]; then continue; fi
  [ $n -eq 5 ] && break
  args+=("n$n")
done
i=0
while [ $i -lt 4 ]; do i=$((i + 1)); [ $i = 2 ] && continue; args+=(w$i); done
until ((i == 0)); do ((i--)); done
for outer in 1 2 3; do
  for inner in a b c; do
    [ $inner = b ] && continue 2
    [ $outer = 3 ] && break 2
    args+=($outer$inner)
  done
done
for ((k = 3; k > 0; k--)) { args+=("k$k"); }
for v in ${LIST:-p q}
do
  case $v in p) continue ;; esac
  args+=($v)
done
while true; do args+=(once); break; done
torchrun pretrain_gpt.py "${args[@]}" $i $n $x
