# argument: first
# argument: second
add() { ARGS+=("$@"); COUNT=$(( ${COUNT:-0} + $# )); }
function choose {
  local size=$1 layers
  if [ "$size" = big ]; then layers=96; return 0; fi
  layers=12
  LAYERS=$layers
  return 1
}
nested () {
  local LAYERS=inner
  add "$LAYERS"
  deeper
}
deeper() { LAYERS="$LAYERS+"; add "$LAYERS"; }
even() { (( $1 % 2 == 0 )); }
launch() { shift; torchrun pretrain_gpt.py "$@" "${ARGS[@]}" --layers $LAYERS --count $COUNT --args $# $1; }
COUNT=0
choose small || add "small"
choose big && add "big"
nested
even 4 && add even
even 3 || add odd
fib() { if [ $1 -lt 2 ]; then R=$1; return; fi; fib $(($1 - 1)); local a=$R; fib $(($1 - 2)); R=$((R + a)); }
fib 7
add $R
layers=outer
add "$layers" "$2"
launch skipped kept "$1 $2" "$@"
