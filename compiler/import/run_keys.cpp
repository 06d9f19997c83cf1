// The table of keys. Sections and names are MindFormers' (r0.3 to r1.5), but for `cluster` and
// `planner`.
#include "compiler/import/run_keys.h"

namespace espalier {
namespace {

using T = KeyType;
constexpr KeyAction used = KeyAction::Used, mapped = KeyAction::Mapped, accepted = KeyAction::Accepted;

struct Row {
  const char *path;
  KeyType type;
  KeyAction action;
  const char *effect;
};

constexpr Row generalKeys[] = {
    {"base_config", T::Any, used, "files merged below this one, in list order"},
    {"seed", T::Index, used, "initial values, dropout and data order follow from it"},
    {"run_mode", T::String, used,
     "train, finetune (from load_checkpoint), eval, or predict (docs/generate.md); export is not compiled"},
    {"output_dir", T::String, accepted, "say `espalier run --checkpoint DIR`"},
    {"load_checkpoint", T::String, used,
     "weights to start from: a folder of ours, of transformers or of Megatron; empty: initial values"},
    {"resume_or_finetune_checkpoint", T::String, mapped, "older name of load_checkpoint"},
    {"src_strategy_path_or_dir", T::String, accepted, "our checkpoints describe their own layout"},
    {"auto_trans_ckpt", T::Bool, accepted, "a checkpoint loads under any plan of the same model"},
    {"only_save_strategy", T::Bool, mapped, "use `espalier plan` or `espalier compile`, which never train"},
    {"resume_training", T::Any, used, "goes on with the run of load_checkpoint; else say `espalier run --resume`"},
    {"load_ckpt_format", T::String, accepted, "the format is recognised from the file"},
    {"remove_redundancy", T::Bool, accepted, "checkpoints hold every element once"},
    {"use_parallel", T::Bool, used, "False: one device"},
    {"micro_batch_interleave_num", T::Count, mapped, "multiplies the micro-batches of a step"},
    {"remote_save_url", T::String, accepted, "cloud upload is not our business"},
    {"aicc_config", T::Any, accepted, "cloud upload is not our business"},
    {"auto_tune", T::Bool, accepted, "the data pipeline needs no tuning"},
    {"filepath_prefix", T::String, accepted, "belongs to auto_tune"},
    {"autotune_per_step", T::Index, accepted, "belongs to auto_tune"},
    {"profile", T::Bool, accepted, "profiling a run is not built"},
    {"profile_start_step", T::Index, accepted, "profiling a run is not built"},
    {"profile_stop_step", T::Index, accepted, "profiling a run is not built"},
    {"init_start_profile", T::Bool, accepted, "profiling a run is not built"},
    {"profile_communication", T::Bool, accepted, "a profile always holds communication"},
    {"profile_memory", T::Bool, accepted, "memory is known exactly from the plan"},
    {"profile_rank_ids", T::List, accepted, "a profile covers all ranks"},
    {"do_eval", T::Bool, accepted, "evaluation is a run of its own"},
    {"eval_step_interval", T::Integer, accepted, "evaluation is a run of its own"},
    {"eval_epoch_interval", T::Integer, accepted, "evaluation is a run of its own"},
    {"layer_scale", T::Bool, accepted, "a setting of vision models"},
    {"layer_decay", T::Number, accepted, "a setting of vision models"},
    {"lr_scale", T::Bool, accepted, "a setting of vision models"},
    {"lr_scale_factor", T::Number, accepted, "a setting of vision models"},
    {"trainer.type", T::String, accepted, "the trainer is always causal language modelling"},
    {"trainer.model_name", T::String, accepted, "a label; the sizes come from model_config"},
    {"metric.type", T::String, accepted, "the loss is reported; perplexity is its exponential"},
    {"metric.eval_type", T::String, accepted, "belongs to metric"},
    {"eval_callbacks[].type", T::String, accepted, "evaluation is a run of its own"},
    {"callbacks[].type", T::String, used, "the loss and the checkpoint monitor are built in"},
    {"callbacks[].prefix", T::String, accepted, "checkpoints are named by their step"},
    {"callbacks[].directory", T::String, accepted, "say `espalier run --checkpoint DIR`"},
    {"callbacks[].per_print_times", T::Count, accepted, "a line per step is printed"},
    {"callbacks[].save_checkpoint_steps", T::Count, accepted, "say `espalier run --save-every N`"},
    {"callbacks[].save_checkpoint_seconds", T::Index, accepted, "checkpoints are taken by steps"},
    {"callbacks[].keep_checkpoint_max", T::Index, accepted, "say `espalier run --keep N`; all are kept otherwise"},
    {"callbacks[].keep_checkpoint_per_n_minutes", T::Index, accepted, "checkpoints are taken by steps"},
    {"callbacks[].integrated_save", T::Bool, accepted, "shards are saved, and read as one"},
    {"callbacks[].async_save", T::Bool, accepted, "a save is on disk when the step goes on"},
    {"callbacks[].keep_default_action", T::Bool, accepted, "belongs to the Python front end"},
    {"callbacks[].save_network_params", T::Bool, accepted, "weights can be read without optimizer state"},
    {"callbacks[].save_trainable_params", T::Bool, accepted, "all parameters are trainable"},
    {"callbacks[].remove_redundancy", T::Bool, accepted, "checkpoints hold every element once"},
    {"callbacks[].checkpoint_format", T::String, accepted, "checkpoints have our own sharded format"},
    {"processor.type", T::String, accepted, "prediction takes a tokenizer by command line"},
    {"processor.return_tensors", T::String, accepted, "belongs to the Python front end"},
    {"processor.tokenizer", T::Any, accepted, "prediction takes a tokenizer by command line"},
    {"context.mode", T::Index, mapped, "0: a compiled graph, which is all there is; 1 is refused"},
    {"context.device_target", T::String, mapped, "the cluster decides for which device is compiled"},
    {"context.device_id", T::Index, accepted, "the launcher places ranks"},
    {"context.max_device_memory", T::Bytes, used,
     "memory limit of the plan, per device (1GB = 2^30 bytes), in place of the cluster's less its margin"},
    {"context.unfused_epilogues", T::List, used,
     "what kernels do on GPUs where the library has it not beside a matrix product: bias, gelu_gradient, bias_gelu, "
     "bias_gradient, add, bias_add"},
    {"context.save_graphs", T::Any, accepted, "use --dump-phases=DIR"},
    {"context.save_graphs_path", T::String, accepted, "use --dump-phases=DIR"},
    {"context.enable_graph_kernel", T::Bool, accepted, "kernels are always fused"},
    {"context.graph_kernel_flags", T::String, accepted, "kernels are always fused"},
    {"context.max_call_depth", T::Count, accepted, "the compiled plan has no calls"},
    {"context.runtime_num_threads", T::Count, accepted, "use `espalier run --threads`"},
    {"context.jit_config", T::Any, accepted, "a knob of another compiler"},
    {"context.mempool_block_size", T::Bytes, accepted, "memory is laid out at compile time"},
    {"context.memory_optimize_level", T::Any, accepted, "memory is laid out at compile time"},
    {"context.ascend_config", T::Any, accepted, "a knob of another compiler"},
    {"context.affinity_cpu_list", T::Any, accepted, "the launcher places ranks"},
};

constexpr Row trainingKeys[] = {
    {"runner_config.epochs", T::Count, accepted, "say `espalier run --steps N`"},
    {"runner_config.batch_size", T::Count, used, "samples of one micro-batch on one data-parallel replica"},
    {"runner_config.image_size", T::Count, accepted, "a setting of vision models"},
    {"runner_config.sink_mode", T::Bool, accepted, "steps never return to a host language"},
    {"runner_config.sink_size", T::Integer, accepted, "steps never return to a host language"},
    {"runner_config.per_epoch_size", T::Integer, accepted, "steps never return to a host language"},
    {"runner_config.initial_epoch", T::Index, accepted, "a resumed run knows its position"},
    {"runner_config.has_trained_epoches", T::Index, accepted, "a resumed run knows its position"},
    {"runner_config.has_trained_steps", T::Index, accepted, "a resumed run knows its position"},
    {"runner_config.gradient_accumulation_steps", T::Count, used, "micro-batches of a step when pp is 1"},
    {"runner_wrapper.type", T::String, mapped, "the plan decides between one micro-batch and a pipeline"},
    {"runner_wrapper.use_clip_grad", T::Bool, used, "gradients are scaled to max_grad_norm at most"},
    {"runner_wrapper.max_grad_norm", T::Number, used, "bound of the global gradient norm"},
    {"runner_wrapper.scale_sense", T::Number, used, "fixed loss scale"},
    {"runner_wrapper.scale_sense.type", T::String, used, "dynamic or fixed loss scale"},
    {"runner_wrapper.scale_sense.loss_scale_value", T::Number, used, "initial loss scale"},
    {"runner_wrapper.scale_sense.scale_factor", T::Number, used, "growth and backoff of the loss scale"},
    {"runner_wrapper.scale_sense.scale_window", T::Count, used, "clean steps before the loss scale grows"},
    {"runner_wrapper.max_skipped_steps", T::Index, used,
     "so many steps in a row whose gradients are not finite end the run as diverged; 0: any number"},
    {"lr_schedule.type", T::String, used, "shape of the learning rate over steps"},
    {"lr_schedule.learning_rate", T::Number, used, "peak learning rate"},
    {"lr_schedule.lr_end", T::Number, used, "learning rate at the last step"},
    {"lr_schedule.warmup_steps", T::Index, used, "steps of linear warmup"},
    {"lr_schedule.warmup_ratio", T::Number, used, "warmup as a share of the total steps, wins over warmup_steps"},
    {"lr_schedule.warmup_epochs", T::Number, accepted, "refused: give warmup_steps or warmup_ratio"},
    {"lr_schedule.warmup_lr_init", T::Number, used, "learning rate at step 0 of the warmup"},
    {"lr_schedule.total_steps", T::Integer, used, "-1: the steps of the run"},
    {"lr_schedule.power", T::Number, used, "exponent of the polynomial"},
    {"lr_schedule.num_cycles", T::Number, used, "cosine waves, 0.5 falls once"},
    {"lr_schedule.decay_steps", T::Count, used, "steps of the final fall of wsd"},
    {"optimizer.type", T::String, used, "AdamW: decoupled decay, none for 1-D parameters and biases"},
    {"optimizer.beta1", T::Number, used, "decay of the first moment"},
    {"optimizer.beta2", T::Number, used, "decay of the second moment"},
    {"optimizer.betas", T::List, used, "[beta1, beta2]"},
    {"optimizer.eps", T::Number, used, "added to the root of the second moment"},
    {"optimizer.weight_decay", T::Number, used, "decoupled weight decay"},
    {"optimizer.learning_rate", T::Number, used, "peak learning rate when lr_schedule gives none"},
    {"optimizer.master_weights", T::Bool, used, "an f32 copy of 16-bit parameters in the optimizer state"},
    {"moe_config.expert_num", T::Count, used, "experts of a layer, for models that have them; 1: dense"},
    {"moe_config.capacity_factor", T::Number, used, "slots of an expert for each sample, over those of an even spread"},
    {"moe_config.aux_loss_factor", T::Number, used,
     "weight of each layer's load-balancing loss, 1 where a sample's choices are spread evenly"},
    {"moe_config.num_experts_chosen", T::Count, used, "experts of a token"},
    {"moe_config.norm_topk_prob", T::Bool, used, "weights of a token's experts sum to 1"},
    {"model.arch.type", T::String, used, "chooses the file of configs/models"},
    {"model.model_config.type", T::String, mapped, "must agree with model.arch.type"},
    {"model.model_config.batch_size", T::Count, accepted,
     "batch of prediction; training takes runner_config.batch_size"},
    {"model.model_config.checkpoint_name_or_path", T::String, accepted,
     "not loaded: training starts from initial values"},
    {"model.model_config.use_flash_attention", T::Bool, accepted,
     "attention never stores the score matrix, either way"},
    {"model.model_config.use_prompt_flash_attention", T::Bool, accepted, "a setting of prediction"},
    {"model.model_config.use_past", T::Bool, accepted, "a cache for prediction, no effect on training"},
    {"model.model_config.offset", T::Any, mapped,
     "layers per stage, as a list, or a list for each chunk: difference from an even share"},
    {"model.model_config.pp_interleave_num", T::Count, mapped,
     "chunks of layers on each stage where pipeline_interleave is True; 1: not interleaved"},
    {"model.model_config.eos_token_id", T::Index, accepted,
     "ends a document; carries loss like any token (upstream leaves it out)"},
    {"model.model_config.eos_token", T::Index, accepted, "older name of eos_token_id"},
    {"model.model_config.bos_token_id", T::Index, accepted, "training data are token ids already"},
    {"model.model_config.pad_token_id", T::Integer, accepted, "samples are packed, there is no padding"},
    {"model.model_config.unk_token_id", T::Index, accepted, "training data are token ids already"},
    {"model.model_config.ignore_token_id", T::Integer, used, "labels with this id carry no loss; negative: none"},
    {"model.model_config.num_labels", T::Count, accepted, "belongs to the classification head, which is not built"},
    {"model.model_config.pet_config", T::Any, accepted, "low-rank adapters are not built"},
    {"model.model_config.repetition_penalty", T::Number, accepted, "a setting of prediction"},
    {"model.model_config.max_decode_length", T::Count, accepted, "a setting of prediction"},
    {"model.model_config.top_k", T::Index, accepted, "a setting of prediction"},
    {"model.model_config.top_p", T::Number, accepted, "a setting of prediction"},
    {"model.model_config.do_sample", T::Bool, accepted, "a setting of prediction"},
};

constexpr Row parallelKeys[] = {
    {"parallel.parallel_mode", T::Any, used, "0 data parallel, 1 the plan below, 2 the planner chooses"},
    {"parallel.gradients_mean", T::Bool, mapped, "the loss is a mean over tokens, so gradients are too"},
    {"parallel.loss_repeated_mean", T::Bool, accepted, "the loss is computed once"},
    {"parallel.full_batch", T::Bool, mapped, "every rank reads its share of the batch only"},
    {"parallel.dataset_strategy", T::Any, mapped, "every rank reads its share of the batch only"},
    {"parallel.search_mode", T::String, accepted, "there is one planner"},
    {"parallel.enable_parallel_optimizer", T::Bool, used, "True: ZeRO 1, optimizer state sharded over dp"},
    {"parallel.parallel_optimizer_config.gradient_accumulation_shard", T::Bool, used,
     "True: ZeRO 2, gradient accumulators sharded too"},
    {"parallel.parallel_optimizer_config.parallel_optimizer_threshold", T::Index, accepted,
     "state is sharded by element ranges, whatever the parameter's size"},
    {"parallel.parallel_optimizer_config.optimizer_weight_shard_size", T::Integer, accepted,
     "state is sharded over the whole dp axis"},
    {"parallel.enable_alltoall", T::Bool, accepted, "the plan chooses its collectives"},
    {"parallel.comm_fusion", T::Any, accepted, "the plan chooses its buckets"},
    {"parallel.strategy_ckpt_save_file", T::String, mapped, "plans are saved by `espalier compile -o`"},
    {"parallel.strategy_ckpt_load_file", T::String, mapped, "plans are read by `espalier run`"},
    {"parallel.strategy_ckpt_config", T::Any, mapped, "plans are saved by `espalier compile -o`"},
    {"parallel.pipeline_config.pipeline_interleave", T::Bool, mapped,
     "True: the interleaved schedule, with 2 chunks a stage unless pp_interleave_num or planner.pin says otherwise"},
    {"parallel.pipeline_config.pipeline_scheduler", T::String, used, "order of forward and backward actions"},
    {"parallel_config.data_parallel", T::Count, used, "replicas: the dp axis times expert_parallel"},
    {"parallel_config.model_parallel", T::Count, used, "tensor-parallel ranks, the tp axis"},
    {"parallel_config.pipeline_stage", T::Count, used, "pipeline stages, the pp axis"},
    {"parallel_config.expert_parallel", T::Count, used,
     "the ep axis, part of data_parallel; more than 1 needs experts"},
    {"parallel_config.context_parallel", T::Count, used, "the cp axis: parts of a sequence"},
    {"parallel_config.context_parallel_algo", T::String, accepted, "the plan chooses its collectives"},
    {"parallel_config.optimizer_shard", T::Bool, mapped,
     "no effect upstream since r0.7; parallel.enable_parallel_optimizer decides"},
    {"parallel_config.micro_batch_num", T::Count, used, "micro-batches of a step when pp is above 1"},
    {"parallel_config.vocab_emb_dp", T::Bool, used, "False (and always with pp above 1): vocabulary sharded over tp"},
    {"parallel_config.gradient_aggregation_group", T::Count, accepted, "the plan chooses its buckets"},
    {"parallel_config.use_seq_parallel", T::Bool, used, "norms and dropout sharded over the sequence inside tp"},
    {"parallel_config.mem_coeff", T::Number, accepted, "the planner knows the memory exactly"},
    {"recompute_config.recompute", T::Any, used,
     "blocks are computed again in backward; a list gives layers per stage or chunk"},
    {"recompute_config.select_recompute", T::Any, used,
     "only element-wise work is computed again; a list gives layers per stage or chunk, patterns choose layers"},
    {"recompute_config.parallel_optimizer_comm_recompute", T::Bool, used,
     "with a parallel optimizer, ZeRO 3: weights gathered again in backward"},
    {"recompute_config.mp_comm_recompute", T::Bool, used, "False keeps tp collectives' results under recompute"},
    {"recompute_config.recompute_slice_activation", T::Bool, used,
     "inputs kept under full recompute are split over tp and gathered in backward"},
    {"swap_config.swap", T::Bool, used, "what all layers keep waits for backward in host memory; planned, not run yet"},
    {"swap_config.default_prefetch", T::Any, accepted, "the plan orders transfers"},
    {"swap_config.layer_swap", T::Any, mapped, "all layers are offloaded, or none"},
    {"swap_config.op_swap", T::Any, mapped, "all that backward reads is offloaded, or nothing"},
    {"planner.global_batch", T::Count, used, "samples per optimizer step over all replicas"},
    {"planner.pin.dp", T::Count, used, "fixes the data-parallel axis"},
    {"planner.pin.tp", T::Count, used, "fixes the tensor-parallel axis"},
    {"planner.pin.pp", T::Count, used, "fixes the pipeline axis"},
    {"planner.pin.cp", T::Count, used, "fixes the context-parallel axis"},
    {"planner.pin.ep", T::Count, used, "fixes the expert-parallel axis"},
    {"planner.pin.micro_batch_size", T::Count, used, "samples of a micro-batch on one replica"},
    {"planner.pin.micro_batches", T::Count, used, "micro-batches of a step on one replica"},
    {"planner.pin.zero", T::Index, used, "ZeRO stage, 0 to 3"},
    {"planner.pin.sequence_parallel", T::Bool, used, "norms and dropout sharded over the sequence inside tp"},
    {"planner.pin.vocab_parallel", T::Bool, used, "vocabulary sharded over tp"},
    {"planner.pin.expert_tensor_parallel", T::Bool, used,
     "True: each expert is split over tp; False: experts are spread over tp and ep"},
    {"planner.pin.offload_optimizer", T::Bool, used, "masters and moments in host memory; planned, not run yet"},
    {"planner.pin.offload_activations", T::Bool, used, "what layers keep in host memory; planned, not run yet"},
    {"planner.pin.offload_parameters", T::Bool, used,
     "parameters and gradients in host memory, with ZeRO 3 and the optimizer there; planned, not run yet"},
    {"planner.pin.recompute", T::String, used, "none, selective or full"},
    {"planner.pin.stage_layers", T::List, used, "layers of each stage"},
    {"planner.pin.virtual_stages", T::Count, used, "chunks of layers on each stage, above 1 for interleaved schedules"},
    {"planner.pin.schedule", T::String, used,
     "gpipe, 1f1b, interleaved, zero_bubble_h1, zero_bubble_v, v_half or v_min"},
    {"system", T::String, used, "software that the plan is priced for, a file of configs/systems; default espalier"},
    {"cluster", T::String, used, "file of configs/clusters, NAME or NAME:HOSTSxDEVICES"},
    {"cluster.base", T::String, used, "cluster whose constants are taken where none is given here"},
    {"cluster.name", T::String, used, "label"},
    {"cluster.device", T::String, used,
     "class of its devices, by which configs/systems state errors: a100, h100, cpu, ..."},
    {"cluster.hosts", T::Count, used, "hosts"},
    {"cluster.devices_per_host", T::Count, used, "devices of a host"},
    {"cluster.memory_bytes", T::Bytes, used, "memory of a device"},
    {"cluster.reserved_bytes", T::Bytes, used, "what of it the driver, libraries and communicators take; default 0"},
    {"cluster.memory_margin", T::Number, used,
     "share of a device's memory that plans leave free, unless context.max_device_memory states the limit; default "
     "0.04"},
    {"cluster.peak_flops.f32", T::Number, used, "peak FLOP/s of matrix products"},
    {"cluster.peak_flops.bf16", T::Number, used, "peak FLOP/s of matrix products"},
    {"cluster.peak_flops.f16", T::Number, used, "peak FLOP/s of matrix products"},
    {"cluster.memory_bandwidth", T::Number, used, "bytes/s of device memory"},
    {"cluster.matmul_efficiency", T::Number, used, "share of the peak that large matrix products reach"},
    {"cluster.attention_efficiency", T::Number, used, "the same of fused attention; default: as matrix products"},
    {"cluster.multiprocessors", T::Count, used, "tiles of a product come in waves of so many; default: no waves"},
    {"cluster.launch_seconds", T::Number, used, "cost of starting a kernel"},
    {"cluster.link.bandwidth", T::Number, used, "bytes/s between devices of a host, per direction"},
    {"cluster.link.latency", T::Number, used, "seconds between devices of a host"},
    {"cluster.network.bandwidth", T::Number, used, "bytes/s between hosts, per device"},
    {"cluster.network.send_bandwidth", T::Number, used, "bytes/s of one send between hosts; default: as bandwidth"},
    {"cluster.network.ring_slope", T::Number, used,
     "share by which each doubling of hosts slows collectives; default 0"},
    {"cluster.network.latency", T::Number, used, "seconds between hosts"},
    {"cluster.host.memory_bytes", T::Bytes, used, "memory of a host; its devices have equal shares"},
    {"cluster.host.bandwidth", T::Number, used, "bytes/s of a link between devices and host memory, per direction"},
    {"cluster.host.devices_per_link", T::Count, used, "devices that share such a link"},
    {"cluster.matmul_algorithms.library", T::String, used, "the library and device that `calibrate --plan` measured"},
    {"cluster.matmul_algorithms.products", T::List, used,
     "its fastest algorithm of each product: {product, algorithm}"},
};

// Rows of train_dataset; eval_dataset takes the same keys, and both `_task` sections repeat the
// map.
constexpr Row datasetKeys[] = {
    {"data_loader.type", T::String, mapped, "samples come from indexed .bin/.idx files"},
    {"data_loader.dataset_dir", T::String, used, "what run reads without --data: a PREFIX or a text file"},
    {"data_loader.shuffle", T::Bool, mapped, "order of samples follows from the seed"},
    {"data_loader.datasets_type", T::String, mapped, "samples come from indexed .bin/.idx files"},
    {"data_loader.sizes", T::List, accepted, "the number of steps decides"},
    {"data_loader.config.data_path", T::List, used,
     "what run reads without --data: a path, or weight path weight path ..."},
    {"data_loader.config.split", T::String, used, "weights of training, validation and test, without --split"},
    {"data_loader.config.seed", T::Index, used, "order of samples"},
    {"data_loader.config.seq_length", T::Count, mapped, "must equal model_config.seq_length"},
    {"data_loader.config.eod_mask_loss", T::Bool, used, "True: no loss where the input is eod"},
    {"data_loader.config.reset_position_ids", T::Bool, used, "True: positions restart behind eod"},
    {"data_loader.config.create_attention_mask", T::Bool, accepted, "attention is causal over the sample"},
    {"data_loader.config.reset_attention_mask", T::Bool, mapped, "only False: attention is causal over the sample"},
    {"data_loader.config.create_compressed_eod_mask", T::Bool, mapped,
     "only False: attention is causal over the sample"},
    {"data_loader.config.eod_pad_length", T::Count, accepted, "attention is causal over the sample"},
    {"data_loader.config.eod", T::Index, used, "the token that ends a document"},
    {"data_loader.config.pad", T::Integer, accepted, "samples are packed, there is no padding"},
    {"tokenizer.type", T::String, accepted, "data are tokenized beforehand, by `espalier data tokenize`"},
    {"tokenizer.max_length", T::Count, accepted, "a sample has seq_length tokens and one label more"},
    {"input_columns", T::List, accepted, "labels are the tokens shifted by one"},
    {"construct_args_key", T::List, accepted, "labels are the tokens shifted by one"},
    {"num_parallel_workers", T::Count, accepted, "files are mapped, there is nothing to parallelise"},
    {"python_multiprocessing", T::Bool, accepted, "there is no Python"},
    {"drop_remainder", T::Bool, accepted, "the last incomplete batch is always dropped"},
    {"batch_size", T::Count, accepted, "runner_config.batch_size decides, as upstream"},
    {"repeat", T::Count, accepted, "the number of steps decides"},
    {"numa_enable", T::Bool, accepted, "files are mapped, pages lie where they are read"},
    {"prefetch_size", T::Count, accepted, "files are mapped, the system reads ahead"},
};

} // namespace

std::vector<KeyRule> runKeys() {
  std::vector<KeyRule> rules;
  auto append = [&rules](const std::string &prefix, const Row &row, KeyAction action) {
    rules.push_back({prefix + row.path, row.type, action, row.effect});
  };
  for (const Row &row : generalKeys)
    append("", row, row.action);
  for (const Row &row : trainingKeys)
    append("", row, row.action);
  for (const Row &row : parallelKeys)
    append("", row, row.action);
  for (const char *data : {"train_dataset", "eval_dataset"}) {
    bool isTraining = data == std::string("train_dataset");
    for (const Row &row : datasetKeys)
      append(std::string(data) + ".", row, isTraining ? row.action : KeyAction::Accepted);
    rules.push_back(
        {std::string(data) + "_task.type", T::String, accepted, "the task is always causal language modelling"});
    for (const Row &row : datasetKeys)
      append(std::string(data) + "_task.dataset_config.", row, KeyAction::Accepted);
  }
  return rules;
}

const char *keyTypeName(KeyType type) {
  const char *names[] = {
      "bool", "whole number >= 1", "whole number >= 0", "whole number", "number", "string", "bytes", "list", "any"};
  return names[static_cast<int>(type)];
}

const char *keyActionName(KeyAction action) {
  const char *names[] = {"used", "mapped", "accepted", "rejected"};
  return names[static_cast<int>(action)];
}

} // namespace espalier
