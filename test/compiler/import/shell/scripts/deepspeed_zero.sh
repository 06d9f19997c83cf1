# environment: ZERO_STAGE=2
TP=2
PP=1
ZERO=${ZERO_STAGE:-1}
if [ "${PP}" -gt 1 -a "${ZERO}" -gt 1 ] ; then echo "not both" ; exit 1; fi
ds_args=""
[ "${PP}" -eq 1 ] && ds_args="--no-pipeline-parallel ${ds_args}"
ds_args="--deepspeed ${ds_args}"
ds_args=" --zero-stage=$ZERO ${ds_args}"
activation_checkpoint="false"
if [ "${activation_checkpoint}" = "true" ]; then
  ds_args="--deepspeed-activation-checkpointing ${ds_args}"
  activation="--checkpoint-activations"
fi
cat <<EOT > /dev/null
{ "train_batch_size" : $((8 * TP)), "zero_optimization": { "stage": $ZERO } }
EOT
for flag in swiglu bf16; do
  ds_args+=" --$flag"
done
python -m torch.distributed.run --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size $TP $activation $ds_args
