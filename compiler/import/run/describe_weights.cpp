#include "compiler/import/run/describe_weights.h"

namespace espalier {

void describeWeights(const RunConfig &run, rt::pb::WeightNames &out) {
  const ModelDescription &model = run.model;
  out.set_file(run.modelFile.substr(run.modelFile.rfind('/') + 1));
  for (const auto &[name, size] : model.dims) {
    rt::pb::WeightNames::Dim &dim = *out.add_dims();
    dim.set_name(name);
    dim.set_size(size);
  }
  for (size_t i = 0; i < model.runs.size(); ++i) {
    rt::pb::WeightNames::Run &calls = *out.add_runs();
    calls.set_kind(model.runs[i].kind);
    calls.set_count(model.runs[i].count);
    calls.set_is_layers(i > 0 && i + 1 < model.runs.size());
    for (const ParameterDescription &parameter : model.segment(model.runs[i].kind).parameters) {
      rt::pb::WeightNames::Parameter &described = *calls.add_parameters();
      described.set_name(parameter.name);
      described.mutable_dims()->Assign(parameter.dims.begin(), parameter.dims.end());
      described.set_tied_to(parameter.tiedTo);
      described.set_adapter_a(parameter.adapterA);
      described.set_adapter_b(parameter.adapterB);
      described.set_is_adapter(parameter.isAdapter);
    }
  }
  if (run.adapters) {
    rt::pb::WeightNames::Adapter &adapter = *out.mutable_adapter();
    adapter.set_rank(run.adapters->rank);
    adapter.set_alpha(run.adapters->alpha);
    adapter.set_dropout(run.adapters->dropout);
  }
  for (const WeightRules &rules : run.weights) {
    if (rules.system.starts_with("gguf") && !run.loadCheckpoint.ends_with(".gguf"))
      continue; // other runs neither read nor write files of llama.cpp
    rt::pb::WeightNames::System &system = *out.add_systems();
    system.set_name(rules.system);
    for (const auto &[pattern, holds] : rules.rules) {
      rt::pb::WeightNames::Rule &rule = *system.add_rules();
      rule.set_pattern(pattern);
      rule.set_holds(holds);
    }
  }
}

} // namespace espalier
