// Each export reports the properties that its system cannot express.
#include "compiler/export/export_plan.h"

#include "planner/answer/explain.h"
#include "planner/model/schedule.h"
#include "planner/search.h"

#include <algorithm>
#include <sstream>

namespace espalier {

using namespace planner;

namespace {

std::string line(const std::string &flag, int64_t value) { return flag + " " + std::to_string(value) + "\n"; }

// Returns the recompute policy that all layers have, or nothing if they differ.
std::optional<Recompute> commonRecompute(const Plan &plan) {
  std::optional<Recompute> common;
  for (const StagePlan &stage : plan.stages)
    for (Recompute recompute : stage.recompute) {
      if (common && *common != recompute)
        return std::nullopt;
      common = recompute;
    }
  return common.value_or(Recompute::None);
}

// The recomputation of a chunk as lists count it: the first `full` layers recompute everything, and layers up to `any`
// recompute at least something.
struct Repeated {
  int full = 0, any = 0;
};

// Returns the recomputation per chunk. Returns nothing if a layer recomputes less than a later layer of its chunk.
std::optional<std::vector<Repeated>> repeatedLayers(const Plan &plan) {
  std::vector<Repeated> chunks;
  for (const StagePlan &stage : plan.stages) {
    Repeated repeated;
    for (int i = 0; i < stage.layers; ++i) {
      if (i > 0 && stage.recompute[i] > stage.recompute[i - 1])
        return std::nullopt;
      repeated.full += stage.recompute[i] == Recompute::Full;
      repeated.any += stage.recompute[i] != Recompute::None;
    }
    chunks.push_back(repeated);
  }
  return chunks;
}

// For systems whose layers must all have one policy: returns the policy with the least recomputation that fits.
Recompute commonThatFits(const Problem &problem, Plan plan) {
  if (std::optional<Recompute> common = commonRecompute(plan))
    return *common;
  for (StagePlan &stage : plan.stages)
    std::ranges::fill(stage.recompute, Recompute::Selective);
  return pricePlan(problem, plan).prediction.fits() ? Recompute::Selective : Recompute::Full;
}

/// Formats one number per chunk as a MindFormers list: one entry per stage. If stages have several chunks, it is a list
/// of such lists, with the first chunks of all stages first.
std::string mindFormersList(const Plan &plan, const std::vector<int> &ofChunks) {
  std::string text;
  size_t stages = static_cast<size_t>(plan.pp);
  for (size_t i = 0; i < ofChunks.size(); ++i)
    text += (i == 0 ? "[" : i % stages == 0 ? "], [" : ", ") + std::to_string(ofChunks[i]);
  return ofChunks.size() > stages ? "[" + text + "]]" : text + "]";
}

bool isEven(const Plan &plan) {
  return std::all_of(plan.stages.begin(), plan.stages.end(),
                     [&](const StagePlan &stage) { return stage.layers == plan.stages.front().layers; });
}

std::string joined(const Plan &plan) {
  std::string text;
  for (const StagePlan &stage : plan.stages)
    text += (text.empty() ? "" : ", ") + std::to_string(stage.layers);
  return text;
}

/// Returns the number of ranks that shard each expert.
int64_t expertTensorRanks(const Plan &plan) { return plan.splitsExperts ? plan.tp : 1; }

bool hasExperts(const SegmentKind &kind) {
  for (const PatternTerms &pattern : kind.patterns)
    for (const ParameterTerm &parameter : pattern.parameters)
      if (parameter.expert)
        return true;
  return false;
}

/// Returns the flag for layers without experts. By default, Megatron gives experts to every layer; a list of ones and
/// zeros overrides that.
std::string megatronExpertLayers(const Problem &problem) {
  std::string list;
  bool isMixed = false;
  for (const LayerRun &run : problem.layers) {
    bool has = hasExperts(problem.kinds[run.kind]);
    isMixed |= has != hasExperts(problem.kinds[problem.layers.front().kind]);
    list += (list.empty() ? "" : "+") + std::string(has ? "[1]*" : "[0]*") + std::to_string(run.count);
  }
  return isMixed ? "--moe-layer-freq \"(" + list + ")\"\n" : "";
}

/// Writes a number in its shortest form.
std::string shortNumber(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

/// Adds the experts of the model and how they are split. The capacity factor gives the slots that memory is planned
/// for, relative to an even distribution.
void addMegatronExperts(const Problem &problem, const Plan &plan, ExportedPlan &result) {
  auto sizeOf = [&](const char *name) -> int64_t {
    for (const Dimension &dimension : problem.dimensions)
      if (dimension.name == name)
        return dimension.size;
    return 0;
  };
  int64_t experts = sizeOf("expert"), choices = sizeOf("choice");
  if (experts == 0 || choices == 0)
    return;
  double even = static_cast<double>(problem.tokensPerSample * choices) / static_cast<double>(experts);
  std::string factor = shortNumber(static_cast<double>(sizeOf("capacity")) / even);
  int64_t width = sizeOf("ffn_expert") > 0 ? sizeOf("ffn_expert") : sizeOf("ffn"); // of each expert
  result.text += line("--num-experts", experts) + megatronExpertLayers(problem) + line("--moe-router-topk", choices) +
                 line("--moe-ffn-hidden-size", width) + line("--expert-model-parallel-size", plan.expertRanks()) +
                 line("--expert-tensor-parallel-size", expertTensorRanks(plan)) + "--moe-expert-capacity-factor " +
                 factor +
                 "\n--moe-pad-expert-input-to-capacity\n--moe-token-dispatcher-type alltoall\n--moe-grouped-gemm\n";
  if (plan.expertRanks() > 1 && plan.tp > 1 && !plan.sequenceParallel)
    result.notExpressed.push_back("experts over ep and tp without sequence parallelism");
  if (plan.cp > 1 && plan.ep > 1 && !plan.expertsOverContext)
    result.notExpressed.push_back("experts over replicas that are not over context ranks");
}

/// Returns the first trained parameters of the layers, or null if all are frozen.
const ParameterTerm *trainedParameters(const Problem &problem) {
  for (const LayerRun &run : problem.layers)
    for (const PatternTerms &pattern : problem.kinds[run.kind].patterns)
      for (const ParameterTerm &parameter : pattern.parameters)
        if (!parameter.isFrozen)
          return &parameter;
  return nullptr;
}

/// Returns whether the layers accumulate and reduce their gradients in 16 bits.
bool has16BitGradients(const Problem &problem) {
  const ParameterTerm *parameters = trainedParameters(problem);
  return parameters && parameters->gradientBytes == 2;
}

/// Returns whether the layers have 16-bit parameters, and gradients in float32.
bool raisesGradients(const Problem &problem) {
  const ParameterTerm *parameters = trainedParameters(problem);
  return parameters && parameters->parameterBytes == 2 && parameters->gradientBytes == 4;
}

/// Returns whether an optimizer of whole matrices updates the layers.
bool updatesMatrices(const Problem &problem) {
  for (const LayerRun &run : problem.layers)
    for (const PatternTerms &pattern : problem.kinds[run.kind].patterns)
      for (const ParameterTerm &parameter : pattern.parameters)
        if (parameter.matrices > 0)
          return true;
  return false;
}

/// Reports QK-clip to a system that does not have it, or not for these attentions.
void addQkClip(const Problem &problem, const char *where, ExportedPlan &result) {
  if (problem.qkClip.threshold > 0)
    result.notExpressed.push_back("QK-clip at " + shortNumber(problem.qkClip.threshold) + where);
}

/// Reports a narrow format of matrix products to a system whose export has no setting for it.
void addFormat(const Problem &problem, ExportedPlan &result) {
  if (!problem.matmulFormat.name.empty())
    result.notExpressed.push_back("matrix products in " + problem.matmulFormat.name);
}

bool isOneFOneB(const Plan &plan) { return plan.schedule == Schedule::OneFOneB || plan.pp == 1; }

/// Returns the number of leading layers per chunk for Megatron's block method: these layers recompute fully, the others
/// nothing. A chunk with fewer layers recomputes all of them. Returns nothing for other plans.
std::optional<int> fullBlock(const Plan &plan) {
  std::optional<std::vector<Repeated>> repeated = repeatedLayers(plan);
  if (!repeated)
    return std::nullopt;
  int layers = std::ranges::max(*repeated, {}, &Repeated::full).full;
  for (size_t chunk = 0; chunk < repeated->size(); ++chunk)
    if (int full = (*repeated)[chunk].full;
        full != std::min(layers, plan.stages[chunk].layers) || (*repeated)[chunk].any != full)
      return std::nullopt;
  return layers;
}

void addMegatronRecompute(const Problem &problem, const Plan &plan, ExportedPlan &result) {
  constexpr const char *full = "--recompute-granularity full\n";
  std::optional<Recompute> common = commonRecompute(plan);
  std::optional<int> block = common ? std::nullopt : fullBlock(plan);
  if (block) {
    result.text += full + std::string("--recompute-method block\n") + line("--recompute-num-layers", *block);
    return;
  }
  Recompute recompute = commonThatFits(problem, plan);
  if (recompute == Recompute::Selective)
    result.text += "--recompute-granularity selective\n";
  else if (recompute == Recompute::Full)
    result.text += full + std::string("--recompute-method uniform\n") + line("--recompute-num-layers", 1);
  if (!common)
    result.notExpressed.push_back(std::string("recompute that differs between stages; the flags have ") +
                                  recomputeName(recompute) + " recompute in all layers");
}

/// Adds recomputation as True, False, or the number of layers of each chunk.
void addMindFormersRecompute(const Problem &problem, const Plan &plan, ExportedPlan &result) {
  std::optional<Recompute> common = commonRecompute(plan);
  std::optional<std::vector<Repeated>> repeated = repeatedLayers(plan);
  bool isListed = !common && repeated && !isVShaped(plan.schedule);
  Recompute all = commonThatFits(problem, plan);
  auto entry = [&](const char *key, Recompute recompute, int Repeated::*count) {
    std::vector<int> counts;
    for (size_t chunk = 0; isListed && chunk < repeated->size(); ++chunk)
      counts.push_back((*repeated)[chunk].*count);
    result.text += std::string("  ") + key + ": " +
                   (isListed ? mindFormersList(plan, counts) : std::string(all == recompute ? "True" : "False")) + "\n";
  };
  result.text += "recompute_config:\n";
  entry("recompute", Recompute::Full, &Repeated::full);
  entry("select_recompute", Recompute::Selective, &Repeated::any);
  result.text += std::string("  mp_comm_recompute: ") + (plan.keepTensorParallelResults ? "False\n" : "True\n");
  if (!common && !isListed)
    result.notExpressed.push_back(std::string("recompute that differs between layers; the file has ") +
                                  recomputeName(all) + " recompute in all of them");
}

/// Adds the layers per stage. `offset` is the difference from an even split, rounded down.
void addMindFormersStages(const Problem &problem, const Plan &plan, ExportedPlan &result) {
  bool isInterleaved = plan.schedule == Schedule::Interleaved, isUneven = !isEven(plan) && !isVShaped(plan.schedule);
  if (isInterleaved || isUneven)
    result.text += "model:\n  model_config:\n";
  if (isInterleaved)
    result.text += "    pp_interleave_num: " + std::to_string(plan.virtualStages) + "\n";
  std::vector<int> offsets;
  for (const StagePlan &chunk : plan.stages)
    offsets.push_back(chunk.layers - problem.layerCount() / static_cast<int>(plan.stages.size()));
  if (isUneven)
    result.text += "    offset: " + mindFormersList(plan, offsets) + "\n";
}

// Returns Megatron's layout of all chunks: E is the embedding, t a layer, L the loss, | separates chunks.
std::string megatronLayout(const Plan &plan) {
  std::vector<std::string> chunks;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    int layers = plan.stages[i].layers;
    std::string chunk = i == 0 ? "E" : "";
    if (layers > 0)
      chunk += layers == 1 ? "t" : "t*" + std::to_string(layers);
    chunks.push_back(chunk + (i + 1 < plan.stages.size() ? "|" : "L"));
  }
  std::string text;
  for (size_t i = 0, next = 0; i < chunks.size(); i = next) {
    while (next < chunks.size() && chunks[next] == chunks[i])
      ++next;
    text += next == i + 1 ? chunks[i] : "(" + chunks[i] + ")*" + std::to_string(next - i) + ",";
  }
  return text;
}

/// Adds the pattern of a model with recurrences, with the borders of its chunks. Returns false for other models.
bool addMegatronPattern(const Problem &problem, const Plan &plan, const std::vector<std::string> &parts,
                        ExportedPlan &result) {
  std::vector<int> kinds; // of all layers
  for (const LayerRun &run : problem.layers)
    kinds.insert(kinds.end(), static_cast<size_t>(run.count), run.kind);
  auto isHybrid = [&](int kind) {
    return parts.at(static_cast<size_t>(kind)).find_first_of("MG") != std::string::npos;
  };
  if (parts.empty() || std::ranges::none_of(kinds, isHybrid))
    return false;
  std::string pattern;
  for (const StagePlan &chunk : plan.stages) {
    pattern += &chunk == &plan.stages.front() ? "" : "|";
    for (int layer = chunk.firstLayer; layer < chunk.firstLayer + chunk.layers; ++layer) {
      auto kind = static_cast<size_t>(kinds.at(static_cast<size_t>(layer)));
      pattern += parts.at(kind);
      if (parts.at(kind).empty()) {
        result.notExpressed.push_back("layers of the kind " + problem.kinds[kind].name +
                                      " (a layer of a hybrid model is one mixer, an MLP or a mixture of experts)");
        return true;
      }
    }
  }
  result.text += "--hybrid-layer-pattern \"" + pattern + "\"\n";
  return true;
}

/// Adds the layers of stages that are not all equal: as numbers if only the first and the last stage differ, else as a
/// layout.
void addMegatronStages(const Problem &problem, const Plan &plan, const std::vector<std::string> &parts,
                       ExportedPlan &result) {
  bool isInterleaved = plan.schedule == Schedule::Interleaved;
  if (!isInterleaved && !isOneFOneB(plan))
    result.notExpressed.push_back("a schedule other than 1F1B and interleaved 1F1B");
  if (addMegatronPattern(problem, plan, parts, result))
    return;
  if (isEven(plan)) {
    if (isInterleaved)
      result.text += line("--num-layers-per-virtual-pipeline-stage", plan.stages.front().layers);
    return;
  }
  if (plan.stages.size() != static_cast<size_t>(plan.pp) && !isInterleaved)
    return result.notExpressed.push_back("uneven stages (" + joined(plan) + ")");
  bool onlyEnds = !isInterleaved;
  for (size_t i = 2; i + 1 < plan.stages.size(); ++i)
    onlyEnds = onlyEnds && plan.stages[i].layers == plan.stages[1].layers;
  if (onlyEnds)
    result.text += line("--decoder-first-pipeline-num-layers", plan.stages.front().layers) +
                   line("--decoder-last-pipeline-num-layers", plan.stages.back().layers);
  else
    result.text += "--pipeline-model-parallel-layout \"" + megatronLayout(plan) + "\"\n";
}

/// Returns null for schedules that torchtitan does not have.
const char *torchtitanSchedule(Schedule schedule) {
  switch (schedule) {
  case Schedule::GPipe:
    return "GPipe";
  case Schedule::OneFOneB:
    return "1F1B";
  case Schedule::Interleaved:
    return "Interleaved1F1B";
  case Schedule::ZeroBubbleV:
    return "ZBVZeroBubble";
  case Schedule::ZeroBubbleH1:
  case Schedule::VHalf:
  case Schedule::VMin:
    return nullptr;
  }
  return nullptr;
}

} // namespace

ExportedPlan exportMegatron(const Problem &problem, const Plan &plan, const std::vector<std::string> &parts) {
  ExportedPlan result;
  std::string &text = result.text;
  text += line("--tensor-model-parallel-size", plan.tp) + line("--pipeline-model-parallel-size", plan.pp);
  if (plan.cp > 1)
    text += line("--context-parallel-size", plan.cp);
  if (plan.cp > 1 && !plan.zigzag)
    result.notExpressed.push_back(
        "one contiguous shard of a sequence on each context rank (Megatron's order is zigzag)");
  addMegatronExperts(problem, plan, result);
  if (plan.sequenceParallel)
    text += "--sequence-parallel\n";
  text += line("--micro-batch-size", plan.microBatchSize) + line("--global-batch-size", problem.globalBatch);
  if (plan.zero >= 1)
    text += "--use-distributed-optimizer\n";
  if (has16BitGradients(problem))
    text += "--grad-reduce-in-bf16\n"; // with --fp16, gradients are in 16 bits anyway
  if (raisesGradients(problem))
    text += "--accumulate-allreduce-grads-in-fp32\n"; // with --bf16, this is the default
  if (plan.tp > 1 && updatesMatrices(problem))
    text += "--muon-tp-mode duplicated\n";
  if (const QkClip &clip = problem.qkClip; clip.threshold > 0)
    text += "--qk-clip\n--qk-clip-threshold " + shortNumber(clip.threshold) + "\n--qk-clip-alpha " +
            shortNumber(clip.alpha) + "\n";
  if (plan.zeroReplicas() > 1)
    text += line("--num-distributed-optimizer-instances", plan.zeroReplicas());
  if (plan.zero >= 2)
    result.notExpressed.push_back("ZeRO stage " + std::to_string(plan.zero) +
                                  " (the distributed optimizer is stage 1)");
  if (problem.zeroCenteredNorms)
    text += "--apply-layernorm-1p\n";
  if (const std::string &format = problem.matmulFormat.name; !format.empty()) // fp8_hybrid, fp4_e2m1
    text += "--" + format.substr(0, 3) + "-format " + format.substr(4) + "\n";
  addMegatronStages(problem, plan, parts, result);
  addMegatronRecompute(problem, plan, result);
  if (!plan.vocabParallel && plan.tp > 1)
    result.notExpressed.push_back("embedding and head whole on every tensor rank");
  // Megatron offloads whole layers, only without pipeline and recomputation, and never the last layer.
  if (plan.offloadActivations && plan.pp == 1 && commonRecompute(plan) == Recompute::None)
    text += line("--cpu-offloading-num-layers", problem.layerCount() - 1);
  else if (plan.offloadActivations)
    result.notExpressed.push_back("offloaded activations together with a pipeline or recompute");
  if (plan.offloadOptimizer && plan.zero >= 1)
    text += "--offload-optimizer-states\n";
  else if (plan.offloadOptimizer)
    result.notExpressed.push_back("offloaded optimizer state without the distributed optimizer");
  if (plan.offloadParameters)
    result.notExpressed.push_back("offloaded parameters");
  return result;
}

ExportedPlan exportMindFormers(const Problem &problem, const Plan &plan) {
  ExportedPlan result;
  auto boolean = [](bool value) { return value ? std::string("True\n") : std::string("False\n"); };
  auto entry = [](const char *key, int64_t value) {
    return std::string("  ") + key + ": " + std::to_string(value) + "\n";
  };
  addFormat(problem, result);
  addQkClip(problem, " (MindFormers clips multi-latent attention alone)", result);
  std::string &text = result.text;
  // batch_size is the micro-batch of one replica. Without a pipeline, micro-batches are accumulated.
  text += "runner_config:\n" + entry("batch_size", plan.microBatchSize);
  if (plan.pp == 1)
    text += entry("gradient_accumulation_steps", plan.microBatches);
  text += "parallel:\n  parallel_mode: 1\n  enable_parallel_optimizer: " + boolean(plan.zero >= 1);
  if (has16BitGradients(problem))
    text += "  gradient_fp32_sync: False\n";
  if (plan.ep > 1)
    text += "  enable_alltoall: True\n";
  if (plan.zero >= 2 || plan.zeroReplicas() > 1)
    text += "  parallel_optimizer_config:\n";
  if (plan.zero >= 2)
    text += "    gradient_accumulation_shard: True\n";
  if (plan.zeroReplicas() > 1) // also counts context and expert ranks
    text += "  " + entry("optimizer_weight_shard_size", static_cast<int64_t>(plan.zeroRanks()) * plan.cp * plan.ep);
  if (plan.pp > 1 && plan.schedule == Schedule::GPipe)
    text += "  pipeline_config:\n    pipeline_scheduler: gpipe\n";
  if (plan.schedule == Schedule::Interleaved)
    text += "  pipeline_config:\n    pipeline_interleave: True\n    pipeline_scheduler: 1f1b\n";
  text += "parallel_config:\n" + entry("data_parallel", static_cast<int64_t>(plan.dp) * plan.ep) +
          entry("model_parallel", plan.tp) + entry("pipeline_stage", plan.pp) +
          entry("micro_batch_num", plan.pp > 1 ? plan.microBatches : 1);
  if (plan.cp > 1)
    text += entry("context_parallel", plan.cp);
  if (plan.hasTwoRuns())
    result.notExpressed.push_back("the zigzag order of context ranks");
  if (plan.ep > 1)
    text += entry("expert_parallel", plan.ep);
  text += "  use_seq_parallel: " + boolean(plan.sequenceParallel) + "  vocab_emb_dp: " + boolean(!plan.vocabParallel);
  addMindFormersRecompute(problem, plan, result);
  if (plan.offloadActivations)
    text += "swap_config:\n  swap: True\n  layer_swap:\n    - backward_prefetch: 1\n      layers: True\n";
  if (plan.offloadOptimizer)
    result.notExpressed.push_back("offloaded optimizer state");
  if (plan.offloadParameters)
    result.notExpressed.push_back("offloaded parameters");
  if (!plan.splitsExperts && plan.tp > 1)
    result.notExpressed.push_back("whole experts on tensor ranks");
  if (plan.expertsOverContext && plan.cp > 1)
    result.notExpressed.push_back("experts over context ranks");
  if (plan.zero == 3)
    result.notExpressed.push_back("ZeRO stage 3");
  addMindFormersStages(problem, plan, result);
  if (!plan.vocabParallel && plan.tp > 1 && plan.pp > 1)
    result.notExpressed.push_back("embedding and head whole on every tensor rank of a pipeline");
  if (plan.microBatches < plan.pp)
    result.notExpressed.push_back("fewer micro-batches (" + std::to_string(plan.microBatches) + ") than stages (" +
                                  std::to_string(plan.pp) + ")");
  if (!isOneFOneB(plan) && plan.schedule != Schedule::GPipe && plan.schedule != Schedule::Interleaved)
    result.notExpressed.push_back(std::string("schedule ") + scheduleName(plan.schedule));
  return result;
}

ExportedPlan exportTorchtitan(const Problem &problem, const Plan &plan) {
  ExportedPlan result;
  auto entry = [](const char *key, int64_t value) {
    return std::string("    ") + key + "=" + std::to_string(value) + ",\n";
  };
  addFormat(problem, result);
  addQkClip(problem, "", result);
  std::string &text = result.text;
  text += "training=TrainingConfig(\n" +
          entry("num_tokens_per_microbatch_per_dp_rank", plan.microBatchSize * problem.tokensPerSample) +
          entry("num_tokens_per_train_step", problem.globalBatch * problem.tokensPerSample) +
          entry("max_context_length", problem.tokensPerSample);
  if (plan.offloadParameters) // covers parameters, gradients and optimizer state
    text += "    enable_cpu_offload=True,\n";
  if (has16BitGradients(problem)) {
    text += "    mixed_precision_reduce=\"bfloat16\",\n";
    if (plan.microBatches > 1)
      result.notExpressed.push_back("gradients accumulated in 16 bits (only their reduction is)");
  }
  // The ranks of ep are a subset of the ranks that shard parameters, even if only experts are sharded.
  bool sharded = plan.zero >= 1;
  text += "),\nparallelism=ParallelismConfig(\n" +
          entry("data_parallel_replicate_degree", sharded ? plan.zeroReplicas() : plan.dp) +
          entry("data_parallel_shard_degree", static_cast<int64_t>(sharded ? plan.zeroRanks() : 1) * plan.ep) +
          entry("tensor_parallel_degree", plan.tp) + entry("context_parallel_degree", plan.cp) +
          entry("pipeline_parallel_degree", plan.pp);
  if (plan.tp > 1 && !plan.sequenceParallel)
    text += "    enable_sequence_parallel=False,\n";
  if (plan.expertRanks() > 1) {
    text += entry("expert_parallel_degree", plan.expertRanks());
    if (!sharded && plan.ep > 1)
      result.notExpressed.push_back("experts over ep while nothing else is sharded over it");
    if (expertTensorRanks(plan) > 1)
      result.notExpressed.push_back("experts split over tensor ranks");
  }
  if (plan.pp > 1) {
    if (const char *schedule = torchtitanSchedule(plan.schedule))
      text += std::string("    pipeline_parallel_schedule=\"") + schedule + "\",\n";
    else
      result.notExpressed.push_back(std::string("schedule ") + scheduleName(plan.schedule));
    text += entry("num_pp_microbatches", plan.microBatches);
    if (isEven(plan)) // by default, embedding and head count as one layer each
      text += entry("pipeline_parallel_layers_per_stage", plan.stages.front().layers) +
              entry("pipeline_parallel_first_stage_less_layers", 0) +
              entry("pipeline_parallel_last_stage_less_layers", 0);
  }
  if (plan.zero == 1 || plan.zero == 2)
    result.notExpressed.push_back("ZeRO stage " + std::to_string(plan.zero) + " (fully sharded is stage 3)");
  std::optional<Recompute> recompute = commonRecompute(plan);
  Recompute all = commonThatFits(problem, plan);
  if (!recompute)
    result.notExpressed.push_back("recompute that differs between layers; the file has it in all of them");
  if (!plan.vocabParallel && plan.tp > 1)
    result.notExpressed.push_back("embedding and head whole on every tensor rank");
  static constexpr const char *policies[] = {"None", "SelectiveAC.Config()", "FullAC.Config()"};
  text += std::string("),\nactivation_checkpoint=") + policies[static_cast<int>(all)] + ",\n";
  if (plan.offloadActivations)
    result.notExpressed.push_back("offloaded activations");
  if (plan.offloadOptimizer && !plan.offloadParameters)
    result.notExpressed.push_back("offloaded optimizer state (enable_cpu_offload moves parameters and gradients, too)");
  if (!isEven(plan))
    result.notExpressed.push_back("uneven stages (" + joined(plan) + ")");
  return result;
}

} // namespace espalier
