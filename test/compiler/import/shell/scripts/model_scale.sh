# argument: 800M
MODEL_SCALE=${1:-"8B"}
case "${MODEL_SCALE}" in
    "800M")
        TENSOR_MODEL_PARALLEL_SIZE=1
        NUM_LAYERS=48
        HIDDEN_SIZE=1024
        ;;
    "8B")
        TENSOR_MODEL_PARALLEL_SIZE=4
        NUM_LAYERS=56
        HIDDEN_SIZE=4096
        ;;
    *)
        echo "Invalid version specified"
        exit 1
        ;;
esac
SEQ_LEN=4096
TRAIN_SAMPLES=73242188  # 300B tokens / 4096
LR_WARMUP_SAMPLES=50000
LR_DECAY_SAMPLES=$((TRAIN_SAMPLES - LR_WARMUP_SAMPLES))
RUN="${MODEL_SCALE}-tp${TENSOR_MODEL_PARALLEL_SIZE}_$((SEQ_LEN / 1024))k"
options=" \
       --tensor-model-parallel-size ${TENSOR_MODEL_PARALLEL_SIZE} \
       --num-layers ${NUM_LAYERS} \
       --hidden-size ${HIDDEN_SIZE} \
       --lr-decay-samples ${LR_DECAY_SAMPLES} \
       --save ./${RUN//-/_} "
if [ "$TENSOR_MODEL_PARALLEL_SIZE" -gt 1 ]; then options="${options} --sequence-parallel"; fi
torchrun --nproc_per_node 8 pretrain_mamba.py ${options}
