# environment: GPUS=8
NODES=4
TP=2 PP=$((NODES / 2))
DP=$((GPUS * NODES / (TP * PP)))
declare -a V
V[0]=3; V[1]=4
X=5
(( X += 2, Y = X++ ))
(( Z = X > 7 ? X ** 2 : -1 ))
W=$(( (1 << 4) | 3 ^ 1 & 7 ))
((NODES > 3)) && BIG=--big
if (( NODES < 3 || TP == 2 && PP != 3 )); then TWO=--two; fi
for ((i = 0, s = 0; i < 5; i++)); do (( s += i )); done
let "K = s % 7" K*=3
EXPR="X + 1"
torchrun pretrain_gpt.py --dp $DP --x $X --y $Y --z $Z --w $W $BIG $TWO --sum $s --k $K \
  --v $((V[0] * V[1])) --v1 $((${V[1]} + ${#V[@]})) --neg $((-7 / 2)) $((-7 % 3)) $((7 / -2)) --hex $((0x1f + 010 + 2#101)) \
  --not $((!0)) $((~5)) --pre $((++X)) $((X--)) $X --expr $((EXPR * 2)) --nested $(( $(( 2 * 3 )) + ( 1 + 1 ) )) \
  --big $((1 << 62)) $((9223372036854775807 + 1)) --tern $((0 ? 1 : 2 ? 3 : 4)) --cmp $((3 >= 3)) $((2 != 2)) --pow $((2 ** 3 ** 2)) \
  --quoted "$(( $# + 1 ))" --shift $((1000 >> 3)) --assign $((N2 = 4, N2 *= N2 + 1)) $N2
