OPTS="--num-layers 2 \
  --lr 1e-4"
OPTS+=" --bf16"
CMD="torchrun --nproc_per_node 8 pretrain_gpt.py $OPTS --name \"a b\" 'c d' \$LATE"
LATE=late
NAME=VALUE_A
VALUE_A=indirect
eval "X_$NAME=made"
eval $CMD ${!NAME} $X_VALUE_A
