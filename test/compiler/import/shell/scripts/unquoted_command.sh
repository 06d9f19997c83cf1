LAUNCH="torchrun --nproc_per_node 4 --nnodes 1"
CMD="$LAUNCH pretrain_gpt.py --seed 1
   --micro-batch-size 2 "
$CMD "$@" --tail 2>&1 | tee log.txt
