export LAYERS=24
HIDDEN=1024
INNER="--outer \"two words\""
/bin/bash -c "A=1; if [ \$A = 1 ]; then torchrun pretrain_gpt.py $INNER --num-layers \$LAYERS \$1 --hidden ${HIDDEN}; fi" name argument
[ "$A" ] || B=untouched
/bin/bash -ec 'exec torchrun pretrain_gpt.py --layers "$LAYERS" ${HIDDEN:-unset} "$@" '"$B" zero one "two three"
