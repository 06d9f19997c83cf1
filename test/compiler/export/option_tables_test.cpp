// Every option that an export writes exists in the pinned version of its system. The tables in options/ name their
// source.
#include "compiler/export/export_plan.h"

#include "planner/answer/explain.h"
#include "planner/model/schedule.h"
#include "test/planner/shapes.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <set>
#include <sstream>

using namespace espalier;
using namespace espalier::planner;

namespace {

using Names = std::set<std::string>;

Names tableOf(const std::string &system) {
  std::ifstream file(ESPALIER_SOURCE_DIR "/test/compiler/export/options/" + system + ".txt");
  Names names;
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#'))
      names.insert(line);
  return names;
}

/// Calls visit(line) for each line of a text.
void forLines(const std::string &text, const std::function<void(const std::string &)> &visit) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    visit(line);
}

/// Returns the flags of a text.
Names flagsOf(const std::string &text) {
  Names names;
  forLines(text, [&](const std::string &line) { names.insert(line.substr(0, line.find(' '))); });
  return names;
}

/// Returns the keys of a YAML text that have a value, as section.key.
Names yamlKeysOf(const std::string &text) {
  Names names;
  std::vector<std::pair<size_t, std::string>> path; // indentation and key of each section
  forLines(text, [&](const std::string &line) {
    size_t indent = line.find_first_not_of(" -"), colon = line.find(':');
    while (!path.empty() && path.back().first >= indent)
      path.pop_back();
    std::string name;
    for (const auto &[at, key] : path)
      name += key + ".";
    std::string key = line.substr(indent, colon - indent);
    if (colon + 1 == line.size())
      path.emplace_back(indent, key);
    else
      names.insert(name + key);
  });
  return names;
}

/// Returns the arguments of a Python text as section.field, or section=value for a section of one line.
Names pythonFieldsOf(const std::string &text) {
  Names names;
  std::string section;
  forLines(text, [&](const std::string &line) {
    if (line.ends_with('('))
      section = line.substr(0, line.find('='));
    else if (line.starts_with(' '))
      names.insert(section + "." + line.substr(4, line.find('=') - 4));
    else if (line.ends_with(',') && line != "),")
      names.insert(line.substr(0, line.size() - 1));
  });
  return names;
}

/// Calls check(problem, plan) for plans that together use every option of the exports.
void forPlans(const std::function<void(const Problem &, const Plan &)> &check) {
  Problem dense = shapeProblem(gpt(24, 2048, 16), System{}, withHost(testMachine(2, 8, 24e9)), 128);
  Problem experts = dense;
  experts.dimensions.insert(experts.dimensions.end(), {{"expert", 8}, {"choice", 2}, {"capacity", 1280}});
  SegmentKind routed = experts.kinds[experts.layers[0].kind];
  routed.patterns.at(0).parameters.at(0).expert = true;
  int plain = experts.layers[0].kind, moe = static_cast<int>(experts.kinds.size());
  experts.kinds.push_back(routed);
  experts.layers = {{plain, 4}, {moe, 20}};
  experts.zeroCenteredNorms = true;
  experts.matmulFormat = {"fp8_hybrid", 1.65};
  dense.matmulFormat = {"fp4_e2m1", 2.6};
  dense.qkClip = {.threshold = 100};
  for (SegmentKind &kind : experts.kinds) // the dense model has float32 gradients of 16-bit parameters
    for (PatternTerms &pattern : kind.patterns)
      for (ParameterTerm &parameter : pattern.parameters)
        parameter.gradientBytes = 2;
  for (const Problem &problem : {dense, experts})
    for (Schedule schedule : kSchedules)
      for (int variant = 0; variant < 64; ++variant) {
        bool isDeep = variant & 1, isUneven = variant & 2;
        Plan plan;
        plan.dp = 2, plan.tp = 2, plan.cp = 2, plan.pp = isDeep ? 4 : 1;
        plan.ep = problem.kinds.size() == dense.kinds.size() ? 1 : 2, plan.splitsExperts = variant & 4;
        plan.microBatches = 8, plan.zero = variant / 8 % 4, plan.sequenceParallel = variant & 4;
        plan.zeroGroup = variant & 4 ? 1 : 0;
        plan.offloadActivations = plan.offloadOptimizer = variant & 32;
        plan.offloadParameters = plan.offloadOptimizer && plan.zero == 3;
        plan.schedule = isDeep ? schedule : Schedule::OneFOneB;
        plan.virtualStages = isDeep ? chunksOf(schedule, schedule == Schedule::Interleaved ? 2 : 1) : 1;
        int chunks = plan.pp * plan.virtualStages;
        for (int chunk = 0, first = 0; chunk < chunks; ++chunk) {
          int shift = isUneven && chunks > 1 ? (chunk == 0 ? -1 : chunk + 1 == chunks ? 1 : 0) : 0;
          int layers = 24 / chunks + shift;
          Recompute recompute = variant & 16 ? Recompute::Full : variant & 8 ? Recompute::Selective : Recompute::None;
          plan.stages.push_back({first, layers, std::vector<Recompute>(layers, recompute)});
          if (isUneven && chunk == 0)
            plan.stages[0].recompute[0] = Recompute::Full;
          first += layers;
        }
        check(problem, plan);
      }
}

TEST(OptionTables, HaveEveryOptionOfTheExports) {
  Names megatron = tableOf("megatron"), mindFormers = tableOf("mindformers"), torchtitan = tableOf("torchtitan");
  Names used[3];
  forPlans([&](const Problem &problem, const Plan &plan) {
    used[0].merge(flagsOf(exportMegatron(problem, plan).text));
    used[1].merge(yamlKeysOf(exportMindFormers(problem, plan).text));
    used[2].merge(pythonFieldsOf(exportTorchtitan(problem, plan).text));
  });
  EXPECT_THAT(megatron, testing::IsSupersetOf(used[0]));
  EXPECT_THAT(mindFormers, testing::IsSupersetOf(used[1]));
  EXPECT_THAT(torchtitan, testing::IsSupersetOf(used[2]));
  // The plans reach the rarest options.
  EXPECT_THAT(used[0],
              testing::IsSupersetOf({"--offload-optimizer-states", "--moe-layer-freq", "--sequence-parallel",
                                     "--num-layers-per-virtual-pipeline-stage", "--recompute-method",
                                     "--decoder-first-pipeline-num-layers", "--pipeline-model-parallel-layout",
                                     "--grad-reduce-in-bf16", "--accumulate-allreduce-grads-in-fp32",
                                     "--apply-layernorm-1p", "--fp8-format", "--fp4-format", "--qk-clip-alpha"}));
  EXPECT_THAT(used[1], testing::IsSupersetOf({"swap_config.layer_swap.layers", "model.model_config.offset",
                                              "parallel.pipeline_config.pipeline_interleave",
                                              "parallel.parallel_optimizer_config.gradient_accumulation_shard"}));
  EXPECT_THAT(used[2], testing::IsSupersetOf({"training.enable_cpu_offload", "parallelism.num_pp_microbatches",
                                              "parallelism.expert_parallel_degree",
                                              "activation_checkpoint=SelectiveAC.Config()"}));
}

} // namespace
