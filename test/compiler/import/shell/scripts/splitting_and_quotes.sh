S="  a  b	c
d "
Q="\"x y\" 'z'"
EMPTY=""
CSV="p,q,,r"
args() { torchrun pretrain_gpt.py "$@"; }
OLD=$IFS
IFS=,
FROM_CSV=($CSV)
JOINED="${FROM_CSV[*]}"
IFS=$OLD
unset IFS
args $S "$S" x${S}y "x${S}y" $Q "$Q" $EMPTY "$EMPTY" ''$EMPTY a''b "a"'b'c \$S "\$S \"q\" \\ \n" '\n' $'tab\there\'s' "a\
b" c\
d e\ f "$EMPTY"$EMPTY --x=$S --y="$S" ${#FROM_CSV[@]} "${FROM_CSV[@]}" $JOINED "a b"$EMPTY"c d" $'\n' ~x a~ "~" #comment
