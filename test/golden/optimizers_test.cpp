// Trains compiled tiny models with SGD, Muon, QK-clip and groups of parameters, and compares the losses with PyTorch's
// (optimizers.json, made by optimizer_reference.py).
#include "test/golden/formula_data.h"

#include "compiler/driver.h"
#include "compiler/import/run/import_run.h"
#include "runtime/run/run.h"
#include "test/host_options.h"

#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

const std::string folder = ESPALIER_SOURCE_DIR "/test/golden/";

nlohmann::json recorded() { return nlohmann::json::parse(std::ifstream(folder + "optimizers.json")); }

std::string textOf(const nlohmann::json &value) {
  return value.is_boolean()  ? value.get<bool>() ? "True" : "False"
         : value.is_string() ? value.get<std::string>()
                             : value.dump();
}

/// Imports the run file of the model of a case, GPT-2 by default, with the widths and the optimizer of a case.
ImportedRun imported(const nlohmann::json &settings) {
  ImportOptions options;
  options.searchPath = {ESPALIER_SOURCE_DIR "/configs"};
  const std::string model = settings.value("model", "gpt2");
  if (model == "gpt2")
    options.sets = {"model.model_config.hidden_size=32"};
  for (const auto &[key, value] : settings.items())
    if (key != "rates" && key != "model")
      options.sets.push_back("optimizer." + key + "=" + textOf(value));
  std::string groups;
  const nlohmann::json rates = settings.value("rates", nlohmann::json::object());
  for (const auto &[name, rate] : rates.items())
    groups += "{type: constant, params: [\"" + name + "\"], learning_rate: " + rate.dump() + "}, ";
  if (!groups.empty())
    options.sets.push_back("grouped_lr_schedule.grouped=[" + groups + "]");
  return importRun(folder + model + ".yaml", options);
}

class Optimizers : public testing::TestWithParam<const char *> {};

TEST_P(Optimizers, TrainsLikePyTorch) {
  nlohmann::json golden = recorded()["cases"][GetParam()];
  ImportedRun run = imported(golden["settings"]);
  ASSERT_TRUE(run.ok()) << run.diagnostics.render();
  mlir::MLIRContext context;
  planner::Plan plan;
  plan.microBatchSize = 4;
  plan.stages = {{0, 2, std::vector(2, planner::Recompute::None)}};
  std::optional<Compiled> compiled = compileRun(context, run.config, plan, hostOptions());
  ASSERT_TRUE(compiled);
  rt::Program program(std::move(compiled->plan), 1);
  rt::RunOptions options;
  options.dataset = std::make_shared<FormulaData>();
  options.steps = static_cast<int64_t>(golden["losses"].size());
  options.threads = 1;
  rt::RunResult result = rt::runPlan(program, options);
  ASSERT_EQ(result.steps.size(), golden["losses"].size());
  for (size_t step = 0; step < result.steps.size(); ++step) {
    double expected = golden["losses"][step];
    EXPECT_NEAR(result.steps[step].loss, expected, 1e-5 * expected) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Optimizers,
                         testing::Values("sgd", "sgd_nesterov", "sgd_plain", "muon", "muon_original", "muon_unit_rms",
                                         "muon_clip", "muon_clip_queries", "adamw_clip", "llama_clip", "adamw_groups",
                                         "sgd_groups", "muon_groups"),
                         [](const auto &info) { return std::string(info.param); });

} // namespace
} // namespace espalier
