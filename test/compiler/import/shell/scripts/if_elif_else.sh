# argument: 2
STAGE=${1:-0}
if [ "$STAGE" -eq 0 ]; then
  SHARD=""
elif [ "$STAGE" -eq 1 -o "$STAGE" = 2 ]; then
  SHARD="--use-distributed-optimizer --stage-of $STAGE"
else
  SHARD="--use-custom-fsdp"
fi
if false; then SHARD=wrong; elif :; then TAIL=--tail; fi
if ! true; then SHARD=wrong; fi
torchrun pretrain_gpt.py $SHARD $TAIL "$SHARD"
