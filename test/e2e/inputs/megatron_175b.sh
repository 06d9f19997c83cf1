#!/bin/bash
# A launch script for GPT-3 175B in the style of Megatron-LM's users. No test executes it.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-128}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 # a folder
DATA_PATH=$2

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr "$(hostname)"
)
MODEL_ARGS=(
    --num-layers 96 # blocks
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1536
    --train-iters 500000
    --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95
    --init-method-std 0.006
    --clip-grad 1.0
    --fp16
    --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6
    --lr-warmup-fraction .001
    --lr-decay-iters 430000
)
PARALLEL_ARGS="--tensor-model-parallel-size 8 \
  --pipeline-model-parallel-size 16 --sequence-parallel"
PARALLEL_ARGS="$PARALLEL_ARGS --use-distributed-optimizer"

torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    "${TRAINING_ARGS[@]}" \
    ${PARALLEL_ARGS} \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --data-path $DATA_PATH --vocab-file vocab.json --merge-file merges.txt --split 949,50,1 \
    --save $CHECKPOINT_PATH --load $CHECKPOINT_PATH --log-interval 100 --save-interval 10000 $@ 2>&1 | tee log.txt
