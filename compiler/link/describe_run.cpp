#include "compiler/link/describe_run.h"

#include "compiler/attributes/batch_ramp.h"
#include "compiler/attributes/run_attributes.h"
#include "compiler/import/run/describe_weights.h"
#include "compiler/link/describe_identity.h"
#include "compiler/link/generation.h"
#include "format/host_machine.h"
#include "format/plan_file.h"

#include "dialects/model/dialect.h"
#include "planner/answer/explain.h"
#include "planner/model/schedule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

#include <fmt/format.h>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

using namespace mlir;

namespace espalier {

namespace {

void describeRecompute(const planner::Plan &plan, rt::pb::Settings &settings) {
  std::set<planner::Recompute> policies;
  for (const planner::StagePlan &stage : plan.stages)
    policies.insert(stage.recompute.begin(), stage.recompute.end());
  settings.set_recompute(policies.size() > 1 ? "mixed" : policies.empty() ? "none" : recomputeName(*policies.begin()));
  settings.set_slices_kept_inputs(policies.count(planner::Recompute::Full) && plan.slicesInputs());
}

void addInput(const std::string &file, rt::pb::Plan &out) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream content;
  content << stream.rdbuf();
  std::string text = content.str();
  auto hash = llvm::SHA256::hash(ArrayRef(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
  rt::pb::Input &input = *out.add_inputs();
  input.set_name(file.substr(file.rfind('/') + 1));
  input.set_sha256(llvm::toHex(hash, /*LowerCase=*/true));
}

/// Writes the optimizer and its hyperparameters, in the order of its row, then those of QK-clip.
void describeOptimizer(const OptimizerConfig &from, rt::pb::Settings &out) {
  const std::map<std::string_view, std::string> texts = {{"momentum", fmt::format("{}", from.momentum)},
                                                         {"nesterov", from.nesterov ? "True" : "False"},
                                                         {"ns_steps", fmt::format("{}", from.newtonSchulzSteps)},
                                                         {"scale_mode", from.scaleMode},
                                                         {"extra_scale_factor", fmt::format("{}", from.scaleFactor)}};
  out.set_optimizer(from.type);
  for (const char *name : rt::optimizerRow(from.type).hyperparameters) {
    rt::pb::Hyperparameter &parameter = *out.add_hyperparameters();
    parameter.set_name(name);
    parameter.set_value(texts.at(name));
  }
  if (from.qkClipThreshold == 0)
    return;
  for (auto [name, value] :
       {std::pair("qk_clip_threshold", from.qkClipThreshold), std::pair("qk_clip_alpha", from.qkClipAlpha)}) {
    rt::pb::Hyperparameter &parameter = *out.add_hyperparameters();
    parameter.set_name(name);
    parameter.set_value(fmt::format("{}", value));
  }
}

} // namespace

void describeRun(const RunConfig &run, const planner::Plan &plan, double flopsPerStep, rt::pb::Plan &out) {
  out.set_version(rt::planVersion);
  out.set_model(run.model.name);
  out.set_compiler(espalierVersion);
  out.set_parameter_count(run.model.parameterCount());
  out.set_memory_limit_bytes(static_cast<uint64_t>(run.cluster.memoryBytes));
  if (!run.cluster.measuredOn.empty())
    out.add_inputs()->set_name(std::string(rt::measuredRates) + run.cluster.measuredOn);
  rt::pb::Mesh &mesh = *out.mutable_mesh();
  mesh.set_pp(plan.pp);
  mesh.set_dp(plan.dp);
  mesh.set_cp(plan.cp);
  mesh.set_ep(plan.ep);
  mesh.set_tp(plan.tp);
  mesh.set_ranks_per_host(run.cluster.devicesPerHost);
  if (plan.zeroReplicas() > 1)
    mesh.set_zero_group(plan.zeroRanks());
  rt::pb::Settings &settings = *out.mutable_settings();
  settings.set_seed(run.seed);
  settings.set_micro_batch_size(plan.microBatchSize);
  settings.set_micro_batches(plan.microBatches);
  settings.set_global_batch(plan.globalBatch());
  settings.set_sequence(run.model.dims.at("seq"));
  settings.set_vocabulary(run.model.dims.at("vocab"));
  settings.set_zero(plan.zero);
  settings.set_sequence_parallel(plan.sequenceParallel);
  describeRecompute(plan, settings);
  settings.set_schedule(planner::scheduleName(plan.schedule));
  describeOptimizer(run.optimizer, settings);
  settings.set_beta1(run.optimizer.beta1);
  settings.set_beta2(run.optimizer.beta2);
  settings.set_epsilon(run.optimizer.epsilon);
  settings.set_weight_decay(run.optimizer.weightDecay);
  settings.set_max_grad_norm(run.optimizer.clip ? run.optimizer.maxGradNorm : 0);
  settings.set_max_skipped_steps(static_cast<uint64_t>(run.optimizer.maxSkippedSteps));
  if (run.optimizer.skipSpikeFactor > 0) {
    settings.set_skip_spike_factor(run.optimizer.skipSpikeFactor);
    settings.set_skip_spike_window(static_cast<uint64_t>(run.optimizer.skipSpikeWindow));
  }
  for (const BatchStep &from : run.batchRamp) {
    rt::pb::BatchStep &step = *settings.add_batch_ramp();
    step.set_samples(static_cast<uint64_t>(from.samples));
    step.set_global_batch(static_cast<uint64_t>(from.globalBatch));
    step.set_entry(rampEntry(run, plan, from.globalBatch));
  }
  *settings.mutable_learning_rate() = run.schedule;
  for (const RateGroup &group : run.optimizer.rateGroups) {
    *settings.add_rate_groups() = group.schedule;
    if (!group.weightDecay)
      continue;
    rt::pb::Hyperparameter &parameter = *settings.add_hyperparameters();
    parameter.set_name(fmt::format("weight decay of group {}", settings.rate_groups_size()));
    parameter.set_value(fmt::format("{}", *group.weightDecay));
  }
  settings.set_dynamic_loss_scale(run.lossScale.dynamic);
  settings.set_initial_loss_scale(run.lossScale.initial);
  settings.set_loss_scale_factor(run.lossScale.factor);
  settings.set_loss_scale_window(run.lossScale.window);
  settings.set_minimum_loss_scale(run.lossScale.minimum);
  settings.set_ignore_token(run.ignoreToken);
  settings.set_flops_per_step(flopsPerStep);
  *settings.mutable_data() = run.data;
  settings.set_run_mode(run.runMode);
  if (run.runMode == "predict")
    settings.set_prompt_tokens(generationPhases(run.model).front().tokens);
  settings.set_load_checkpoint(run.loadCheckpoint);
  settings.set_resume_training(run.resume);
  describeIdentity(run, *out.mutable_identity());
  describeWeights(run, *out.mutable_weights());
  addInput(run.file, out);
}

double stepFlops(ModuleOp joint) {
  double total = 0;
  for (const SegmentRun &run : readRuns(joint)) {
    double flops = 0;
    auto function = joint.lookupSymbol<func::FuncOp>(run.kind);
    if (!function)
      continue;
    function.walk([&](Operation *op) {
      auto costed = dyn_cast<CostedOp>(op);
      if (costed && costed.isExpensive())
        flops += costed.flops();
    });
    total += flops * run.count;
  }
  return total;
}

} // namespace espalier
