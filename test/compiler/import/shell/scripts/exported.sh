export A=1 B="two words"
readonly C=3
declare D=4
declare -i E=5
export -n A
export G H=8
typeset I=9
DIST="--a $A"
export DIST="$DIST --b"
X=temporary true
J=10 torchrun pretrain_gpt.py $A "$B" $C $D $E $H $I $DIST ${X:-gone} ${J:-not yet}
