// The answer for named software is what its export writes: importing the exported text gives the same plan and the same
// seconds.
#include "compiler/export/export_plan.h"
#include "compiler/import/megatron/import_args.h"
#include "compiler/profile/profile_model.h"
#include "planner/answer/explain.h"
#include "planner/search.h"
#include "test/compiler/profile/sample_plans.h"

#include "mlir/IR/MLIRContext.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>

using namespace espalier;

namespace {

constexpr int trials = 40;

/// A random question: a run file that leaves the plan to the planner, and its cluster.
struct Question {
  std::string text, cluster;
};

Question randomQuestion(std::mt19937 &random) {
  auto pick = [&](std::initializer_list<int> values) { return *(values.begin() + random() % values.size()); };
  int hosts = pick({1, 2, 4}), layers = pick({16, 24, 32});
  const char *cluster = pick({0, 1}) ? "h100_dgx" : "a100_80g_selene";
  return {fmt::format(
              "base_config: {}/configs/llama2_7b.yaml\n"
              "use_parallel: True\nparallel: {{parallel_mode: 2}}\n"
              "context: {{max_device_memory: {}GB}}\n"
              "planner: {{global_batch: {}, pin: {{}}}}\n"
              "model: {{model_config: {{num_layers: {}, hidden_size: 8192, num_heads: 64, n_kv_heads: 8, "
              "intermediate_size: 28672, seq_length: 4096, param_init_type: bfloat16, compute_dtype: bfloat16}}}}\n",
              ESPALIER_SOURCE_DIR, pick({24, 40, 60, 74}), pick({64, 96, 128, 256}), layers),
          fmt::format("{}:{}x8", cluster, hosts)};
}

class RoundTrip : public testing::Test {
protected:
  RoundTrip() { std::filesystem::create_directories(folder); }

  std::string write(const std::string &name, const std::string &text) const {
    std::string file = folder + "/" + name;
    std::ofstream(file) << text;
    return file;
  }

  RunConfig import(const std::string &file, const std::string &cluster, const std::string &system) const {
    ImportOptions options;
    options.cluster = cluster;
    options.system = system;
    ImportedRun imported = importRun(file, options);
    EXPECT_TRUE(imported.ok()) << imported.diagnostics.render();
    return imported.config;
  }

  /// Calls visit(file of the question, question, run, problem, answer) for random questions that have an answer.
  template <typename Visit> void visitAnswers(const std::string &system, Visit visit) {
    std::mt19937 random(21);
    int answers = 0, recomputes = 0;
    for (int trial = 0; trial < trials; ++trial) {
      Question question = randomQuestion(random);
      SCOPED_TRACE(question.cluster + "\n" + question.text);
      std::string file = write("question.yaml", question.text);
      RunConfig run = import(file, question.cluster, system);
      std::optional<planner::Problem> problem = profiles.profile(run);
      ASSERT_TRUE(problem);
      planner::SearchResult result = planner::search(*problem, {.alternatives = 0, .diagnose = false});
      for (planner::PricedPlan &answer : result.plans) {
        ++answers;
        recomputes += planner::describePlan(answer.plan).find("recompute") != std::string::npos;
        SCOPED_TRACE(planner::describePlan(answer.plan));
        visit(file, question, run, *problem, answer);
      }
    }
    EXPECT_GT(answers, trials / 2);
    EXPECT_GT(recomputes, 5);
  }

  /// The plan that a run file pins must be the answer, with its price.
  void expectSame(const RunConfig &back, const planner::PricedPlan &answer) {
    ASSERT_TRUE(back.isPinned);
    std::optional<planner::Problem> problem = profiles.profile(back);
    ASSERT_TRUE(problem);
    expectSame(planner::pricePlan(*problem, pinnedPlan(back)), answer);
  }

  static void expectSame(const planner::PricedPlan &again, const planner::PricedPlan &answer) {
    EXPECT_EQ(planner::describePlan(again.plan), planner::describePlan(answer.plan));
    ASSERT_EQ(again.plan.stages.size(), answer.plan.stages.size());
    for (size_t i = 0; i < again.plan.stages.size(); ++i) {
      EXPECT_EQ(again.plan.stages[i].layers, answer.plan.stages[i].layers);
      EXPECT_EQ(again.plan.stages[i].recompute, answer.plan.stages[i].recompute);
    }
    EXPECT_NEAR(again.prediction.stepSeconds, answer.prediction.stepSeconds, 1e-9 * answer.prediction.stepSeconds);
    EXPECT_NEAR(again.prediction.peakBytes, answer.prediction.peakBytes, 1);
  }

  std::string folder = testing::TempDir() + "round_trip";
  mlir::MLIRContext context;
  ProfileCache profiles{context, "cpu"};
};

} // namespace

TEST_F(RoundTrip, MegatronsFlagsGiveTheAnswer) {
  visitAnswers("megatron_core", [&](const std::string &file, const Question &question, const RunConfig &run,
                                    const planner::Problem &problem, const planner::PricedPlan &answer) {
    ExportedPlan exported = exportMegatron(problem, answer.plan);
    EXPECT_EQ(exported.notExpressed, std::vector<std::string>());
    ArgsOptions options;
    options.base = file;
    options.cluster = question.cluster;
    options.baseDevices = run.cluster.devices();
    options.baseLayers = run.model.layerCount();
    ImportedArgs imported = importArgs("flags", exported.text, options);
    EXPECT_FALSE(imported.diagnostics.hasErrors()) << imported.diagnostics.render();
    expectSame(import(write("flags.yaml", imported.yaml), question.cluster, "megatron_core"), answer);
  });
}

TEST_F(RoundTrip, MindFormersFileGivesTheAnswer) {
  visitAnswers("mindformers", [&](const std::string &, const Question &question, const RunConfig &,
                                  const planner::Problem &problem, const planner::PricedPlan &answer) {
    ExportedPlan exported = exportMindFormers(problem, answer.plan);
    EXPECT_EQ(exported.notExpressed, std::vector<std::string>());
    std::string file = write("file.yaml", "base_config: question.yaml\n" + exported.text);
    expectSame(import(file, question.cluster, "mindformers"), answer);
  });
}

// Espalier imports no configuration of torchtitan, so that only its completeness is checked.
TEST_F(RoundTrip, TorchtitanHasEveryAnswer) {
  visitAnswers("torchtitan", [&](const std::string &, const Question &, const RunConfig &,
                                 const planner::Problem &problem, const planner::PricedPlan &answer) {
    EXPECT_EQ(exportTorchtitan(problem, answer.plan).notExpressed, std::vector<std::string>());
  });
}
