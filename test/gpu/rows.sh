# The plans that test/gpu/pack.sh compiles and test/gpu/run runs, in lines NAME CONFIG KEY=VALUE ...
one="parallel_config.data_parallel=1 parallel_config.model_parallel=1 parallel_config.pipeline_stage=1 cluster=cpu_local:1x1"
four="parallel_config.data_parallel=1 parallel_config.model_parallel=2 parallel_config.pipeline_stage=2 cluster=cpu_local:1x4"

# Plans of `check`, for both targets. The plans with the most likely faults come first, because time may run out.
rows() {
  local tiny=configs/tiny_gpt.yaml
  local bf16="model.model_config.param_init_type=bfloat16 model.model_config.compute_dtype=bfloat16 optimizer.master_weights=True"
  local f16="model.model_config.param_init_type=float16 model.model_config.compute_dtype=float16 optimizer.master_weights=True"
  local sizes="model.model_config.hidden_size=128 model.model_config.intermediate_size=192 model.model_config.seq_length=80"
  local llama="test/equivalence/llama.yaml $sizes" mixtral="test/equivalence/mixtral.yaml $sizes"
  echo gpt_f32 "$tiny" $one
  echo gpt_bf16 "$tiny" $one $bf16
  echo llama_bf16 $llama $bf16
  # Rounding in bf16 sends a few tokens to other experts. Updates of the usual size make that a difference of gradients.
  echo mixtral_bf16 $mixtral $bf16 lr_schedule.learning_rate=3e-5
  echo gpt_dropout "$tiny" $one model.model_config.hidden_dropout_rate=0.1 model.model_config.attention_dropout_rate=0.1
  echo llama_f32 $llama
  echo mixtral_f32 $mixtral
  echo gpt_f16 "$tiny" $one $f16
  echo gpt_accumulate "$tiny" $one planner.pin.micro_batches=4
  echo gpt_recompute "$tiny" $one recompute_config.recompute=True
  local data=train_dataset.data_loader.config
  echo llama_documents $llama $data.eod=32 $data.eod_mask_loss=True $data.reset_position_ids=True $data.reset_attention_mask=True
  echo gpt_muon test/equivalence/gpt2.yaml model.model_config.hidden_size=128 model.model_config.seq_length=80 optimizer.type=Muon
  echo qwen3_moe_f32 test/equivalence/qwen3_moe.yaml model.model_config.head_dim=16
}

# Plans of `comm`: the model on four ranks, and on one rank for comparison. A small model comes first. Without a
# pipeline, micro_batch_num has no effect, so the plans for one rank pin their micro-batches.
comm_rows() {
  local large="configs/gpt3_857m.yaml parallel_config.micro_batch_num=4 runner_wrapper.scale_sense.loss_scale_value=65536"
  echo small configs/tiny_gpt.yaml $four parallel_config.micro_batch_num=2
  echo small_one configs/tiny_gpt.yaml $one planner.pin.micro_batches=2
  echo 857m $large
  echo 857m_one $large ${one/cpu_local/h200} planner.pin.micro_batches=4
}
