#!/bin/bash
# A launch script for a mixture of experts in the style of Megatron-LM's own scripts.
MODEL_ARGS=(
    --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144
    --num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128 --qk-layernorm
    --seq-length 4096 --max-position-embeddings 4096 --vocab-size 151936
    --normalization RMSNorm --norm-epsilon 1e-6 --swiglu --disable-bias-linear
    --position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0
    --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0
)
MOE_ARGS=(
    --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-layer-freq "([1]*48)"
    --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-3
    --moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity
    --moe-token-dispatcher-type alltoall --moe-grouped-gemm --moe-permute-fusion --moe-router-dtype fp32
)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py ${MODEL_ARGS[@]} ${MOE_ARGS[@]} --bf16 \
    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --expert-model-parallel-size 8 \
    --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 512 --lr 3e-4
