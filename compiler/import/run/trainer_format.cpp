#include "compiler/import/run/trainer_format.h"

#include "compiler/import/run/unbuilt_feature.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

namespace espalier {
namespace {

/// A key that is moved.
struct MovedKey {
  const char *from, *to;
};

constexpr MovedKey movedKeys[] = {
    {"training_args.epochs", "runner_config.epochs"},
    {"training_args.micro_batch_size", "runner_config.batch_size"},
    {"training_args.global_batch_size", "planner.global_batch"},
    {"training_args.training_seed", "seed"},
    {"training_args.dataset_seed", "train_dataset.data_loader.config.seed"},
    {"training_args.resume_training", "resume_training"},
    {"training_args.scale_sense", "runner_wrapper.scale_sense"},
    {"training_args.use_clip_grad", "runner_wrapper.use_clip_grad"},
    {"training_args.max_grad_norm", "runner_wrapper.max_grad_norm"},
    {"training_args.calculate_per_token_loss", "runner_wrapper.calculate_per_token_loss"},
    {"training_args.check_for_nan_in_loss_and_grad", "check_for_nan_in_loss_and_grad"},
    {"training_args.print_separate_loss", "print_separate_loss"},
    {"training_args.sink_mode", "runner_config.sink_mode"},
    {"training_args.sink_size", "runner_config.sink_size"},
    {"training_args.ignore_data_skip", "ignore_data_skip"},
    {"training_args.data_skip_steps", "data_skip_steps"},
    {"training_args.use_checkpoint_health_monitor", "use_checkpoint_health_monitor"},
    {"checkpoint_config.load_checkpoint", "load_checkpoint"},
    {"checkpoint_config.load_ckpt_format", "load_ckpt_format"},
    {"checkpoint_config.remove_redundancy", "remove_redundancy"},
    {"distribute_parallel_config.data_parallel_size", "parallel_config.data_parallel"},
    {"distribute_parallel_config.tensor_model_parallel_size", "parallel_config.model_parallel"},
    {"distribute_parallel_config.pipeline_model_parallel_size", "parallel_config.pipeline_stage"},
    {"distribute_parallel_config.context_parallel_size", "parallel_config.context_parallel"},
    {"distribute_parallel_config.cp_comm_type", "parallel_config.context_parallel_algo"},
    {"distribute_parallel_config.expert_model_parallel_size", "parallel_config.expert_parallel"},
    {"distribute_parallel_config.sequence_parallel", "parallel_config.use_seq_parallel"},
    {"distribute_parallel_config.gradient_aggregation_group", "parallel_config.gradient_aggregation_group"},
    {"distribute_parallel_config.micro_batch_interleave_num", "micro_batch_interleave_num"},
    {"distribute_parallel_config.pipeline_parallel_config.pipeline_interleave",
     "parallel.pipeline_config.pipeline_interleave"},
    {"distribute_parallel_config.pipeline_parallel_config.pipeline_scheduler",
     "parallel.pipeline_config.pipeline_scheduler"},
    {"distribute_parallel_config.pipeline_parallel_config.virtual_pipeline_model_parallel_size",
     "model.model_config.pp_interleave_num"},
    {"distribute_parallel_config.pipeline_parallel_config.seq_split_num", "parallel_config.seq_split_num"},
    {"distribute_parallel_config.pipeline_parallel_config.pipeline_stage_offset", "model.model_config.offset"},
    {"distribute_parallel_config.optimizer_parallel_config.enable_parallel_optimizer",
     "parallel.enable_parallel_optimizer"},
    {"distribute_parallel_config.optimizer_parallel_config.optimizer_weight_shard_size",
     "parallel.parallel_optimizer_config.optimizer_weight_shard_size"},
    {"distribute_parallel_config.optimizer_parallel_config.gradient_accumulation_shard",
     "parallel.parallel_optimizer_config.gradient_accumulation_shard"},
    {"distribute_parallel_config.optimizer_parallel_config.parallel_optimizer_threshold",
     "parallel.parallel_optimizer_config.parallel_optimizer_threshold"},
};

/// Keys that no key of the other releases has the meaning of.
constexpr UnbuiltFeature otherKeys[] = {
    {"training_args.gradient_accumulation_steps", "1",
     "the micro-batches of a step follow from global_batch_size and micro_batch_size"},
    {"training_args.stop_step", "",
     "a run has as many steps as `espalier run --steps N` or lr_schedule.total_steps say"},
    {"training_args.use_skip_data_by_global_norm", "false",
     "runner_wrapper.skip_spike_factor skips steps with a large gradient norm"},
    {"training_args.use_fast_process_recovery_by_global_norm", "false", "a diverged run is not restarted"},
    {"training_args.global_norm_spike_threshold", nullptr, ""},
    {"training_args.global_norm_spike_count_threshold", nullptr, ""},
    {"training_args.embedding_local_norm_threshold", nullptr, ""},
    {"training_args.enable_expert_relocation", "false", "experts stay on their ranks"},
    {"distribute_parallel_config.expert_tensor_parallel_size", "1",
     "planner.pin.expert_tensor_parallel says whether tp splits experts"},
    {"distribute_parallel_config.optimizer_parallel_config.optimizer_level", "level1",
     "gradient_accumulation_shard shards gradients, and recompute_config.parallel_optimizer_comm_recompute parameters"},
};

YamlPtr find(const YamlPtr &root, std::string_view path) {
  YamlPtr node = root;
  while (node && !path.empty()) {
    size_t end = std::min(path.find('.'), path.size());
    auto entry = std::ranges::find(node->entries, path.substr(0, end), &YamlEntry::key);
    node = entry == node->entries.end() ? nullptr : entry->value;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return node;
}

/// Returns a copy without a key. Drops a section that becomes empty.
YamlPtr without(const YamlPtr &root, std::string_view path) {
  auto copy = std::make_shared<YamlNode>(*root);
  size_t end = path.find('.');
  auto entry = std::ranges::find(copy->entries, path.substr(0, end), &YamlEntry::key);
  if (entry == copy->entries.end())
    return root;
  if (end != std::string_view::npos)
    entry->value = without(entry->value, path.substr(end + 1));
  if (end == std::string_view::npos || (entry->value->isMap() && entry->value->entries.empty()))
    copy->entries.erase(entry);
  return copy;
}

YamlPtr scalar(const char *text, const SourceLocation &where) {
  auto node = std::make_shared<YamlNode>();
  node->kind = YamlNode::Kind::Scalar;
  node->text = text;
  node->where = where;
  return node;
}

} // namespace

YamlPtr translateTrainerFormat(const YamlPtr &root, Diagnostics &diagnostics) {
  YamlPtr training = find(root, "training_args"), result = root;
  auto move = [&](const char *from, const char *to) -> void {
    YamlPtr value = find(result, from);
    if (!value)
      return;
    result = without(result, from);
    if (find(result, to))
      return diagnostics.error(value->where, fmt::format("'{}' and '{}' mean the same, keep one of them", from, to));
    if (value->kind != YamlNode::Kind::Null)
      if (YamlPtr moved = withValue(result, to, value))
        result = moved;
  };
  move("model_config", "model.model_config");
  for (const auto &[from, to] : movedKeys)
    move(from, to);
  for (const UnbuiltFeature &feature : otherKeys) {
    YamlPtr value = find(result, feature.name);
    if (!value)
      continue;
    result = without(result, feature.name);
    if (*feature.reason && value->kind != YamlNode::Kind::Null && !feature.isOff(*value))
      diagnostics.refusal(value->where, fmt::format("{}; remove {}", feature.reason, feature.name));
  }
  for (const char *section : {"training_args", "distribute_parallel_config"})
    if (YamlPtr rest = find(result, section)) {
      result = without(result, section);
      for (const YamlEntry &entry : rest->entries)
        diagnostics.error(entry.keyWhere, fmt::format("unknown key '{}' in {}", entry.key, section));
    }
  const char *length = "model.model_config.seq_length";
  if (YamlPtr samples = find(result, "train_dataset.data_loader.config.seq_length"); samples && !find(result, length))
    result = withValue(result, length, samples); // since r1.6, the model is built for the samples of the data
  if (training)                                  // defaults of this trainer alone
    for (const auto &[key, text] :
         {MovedKey{"runner_wrapper.use_clip_grad", "True"}, MovedKey{"runner_wrapper.max_grad_norm", "1.0"}})
      if (!find(result, key))
        if (YamlPtr added = withValue(result, key, scalar(text, training->where)))
          result = added;
  return result;
}

} // namespace espalier
