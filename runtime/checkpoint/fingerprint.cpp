// Terms are compared by the text that users see, so terms with equal text are equal.
#include "runtime/checkpoint/fingerprint.h"

#include "format/optimizers.h"
#include "runtime/parameter_block.h"

#include <fmt/format.h>
#include <set>

namespace espalier::rt {
namespace {

std::string scheduleText(const pb::LearningRate &rate) {
  if (rate.kind() == "constant" && rate.warmup_ratio() <= 0 && rate.warmup_steps() <= 0)
    return fmt::format("constant {}", rate.peak());
  std::string warmup = rate.warmup_ratio() > 0 ? fmt::format("{} of the steps", rate.warmup_ratio())
                                               : fmt::format("{} steps", std::max<int64_t>(0, rate.warmup_steps()));
  std::string total = rate.total_steps() > 0 ? fmt::format("{} steps", rate.total_steps()) : "the run's steps";
  return fmt::format("{} from {} to {} over {}, warmup from {} over {}, power {}, cycles {}, decay {}", rate.kind(),
                     rate.peak(), rate.end(), total, rate.warmup_init(), warmup, rate.power(), rate.cycles(),
                     rate.decay_steps());
}

std::string optimizerText(const pb::Plan &plan) {
  const pb::Settings &settings = plan.settings();
  int decaying = 0;
  for (const NamedParameter &named : parametersOf(plan))
    decaying += named.bucket->decay();
  const OptimizerRow &row = optimizerRow(settings.optimizer());
  std::string text;
  if (row.number != pb::ADAMW)
    text = fmt::format("{}, ", row.name);
  for (const pb::Hyperparameter &parameter : settings.hyperparameters())
    text += fmt::format("{} {}, ", parameter.name(), parameter.value());
  if (row.number == pb::ADAMW || row.isForMatrices)
    text += fmt::format("beta1 {}, beta2 {}, epsilon {}, ", settings.beta1(), settings.beta2(), settings.epsilon());
  return text + fmt::format("weight decay {} of {} parameters, gradient norm at most {}", settings.weight_decay(),
                            decaying,
                            settings.max_grad_norm() > 0 ? fmt::format("{}", settings.max_grad_norm()) : "any");
}

/// Returns the schedules of the groups of parameters, or an empty string.
std::string groupsText(const pb::Plan &plan) {
  std::string text;
  for (int group = 0; group < plan.settings().rate_groups_size(); ++group) {
    int count = 0;
    for (const NamedParameter &named : parametersOf(plan))
      count += named.bucket->rate_group() == static_cast<uint32_t>(group) + 1;
    text += fmt::format("{}{} parameters: {}", text.empty() ? "" : "; ", count,
                        scheduleText(plan.settings().rate_groups(group)));
  }
  return text;
}

std::string batchText(const pb::Settings &settings) {
  std::string ramp;
  for (const pb::BatchStep &step : settings.batch_ramp())
    ramp += fmt::format("{} until {}, then ", step.global_batch(), step.samples());
  return fmt::format("{}{} samples of {} tokens", ramp, settings.global_batch(), settings.sequence());
}

} // namespace

Fingerprint fingerprintOf(const pb::Plan &plan, const std::string &data) {
  const pb::Settings &settings = plan.settings();
  std::string scale =
      settings.dynamic_loss_scale()
          ? fmt::format("from {}, factor {} after {} steps, at least {}", settings.initial_loss_scale(),
                        settings.loss_scale_factor(), settings.loss_scale_window(), settings.minimum_loss_scale())
          : fmt::format("{}", settings.initial_loss_scale());
  Fingerprint made = {plan.identity().model(),
                      {{"batch", batchText(settings)},
                       {"seed", fmt::format("{}", settings.seed())},
                       {"data", data},
                       {"types", plan.identity().types()},
                       {"loss scale", scale},
                       {"dropout", plan.identity().dropout()},
                       {"learning rate", scheduleText(settings.learning_rate())},
                       {"optimizer", optimizerText(plan)}}};
  if (settings.rate_groups_size() > 0)
    made.terms["learning rates of groups"] = groupsText(plan);
  if (settings.skip_spike_factor() > 0)
    made.terms["skipped spikes"] = fmt::format("norms above {} times the median of {}", settings.skip_spike_factor(),
                                               settings.skip_spike_window());
  return made;
}

pb::Optimizer optimizerOfText(std::string_view text) {
  for (const OptimizerRow &row : optimizers)
    if (row.number != pb::ADAMW && text.starts_with(fmt::format("{}, ", row.name)))
      return row.number;
  return pb::ADAMW;
}

std::vector<std::string> changedTerms(const Fingerprint &saved, const Fingerprint &now) {
  std::vector<std::string> changes;
  auto wordsOf = [](const Fingerprint &fingerprint, const std::string &term) {
    auto found = fingerprint.terms.find(term);
    return found == fingerprint.terms.end() || found->second.empty() ? std::string("not known") : found->second;
  };
  std::set<std::string> all;
  for (const Fingerprint *each : {&saved, &now})
    for (const auto &[term, words] : each->terms)
      all.insert(term);
  for (const std::string &term : all)
    if (std::string there = wordsOf(saved, term), here = wordsOf(now, term); there != here)
      changes.push_back(fmt::format("{}: {} there, {} now", term, there, here));
  return changes;
}

} // namespace espalier::rt
