#!/bin/bash
# A launch script for a GPT with 24 layers of size 1024 in float16 on four GPUs, with Megatron-LM's initial loss scale
# of 2^32. `espalier import-args` parses this script; no test executes it.
export CUDA_DEVICE_MAX_CONNECTIONS=1
CHECKPOINT_PATH=$1
DATA_PATH=$2

GPT_ARGS="
    --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 2
    --num-layers 24
    --hidden-size 1024
    --num-attention-heads 16
    --seq-length 2048
    --max-position-embeddings 2048
    --micro-batch-size 2
    --global-batch-size 16
    --lr 0.00015
    --train-iters 500000
    --lr-decay-iters 320000
    --lr-decay-style cosine
    --min-lr 1.0e-5
    --weight-decay 1e-2
    --lr-warmup-fraction .01
    --clip-grad 1.0
    --fp16
    --initial-loss-scale 4294967296
    --loss-scale-window 1000
"

torchrun --nproc_per_node 4 --nnodes 1 --node_rank 0 --master_addr localhost --master_port 6000 pretrain_gpt.py \
    $GPT_ARGS \
    --data-path $DATA_PATH --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --split 949,50,1 \
    --distributed-backend nccl --save $CHECKPOINT_PATH --load $CHECKPOINT_PATH --log-interval 100 --save-interval 10000 \
    --eval-interval 1000 --eval-iters 10
