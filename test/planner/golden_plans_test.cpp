// Golden results of the search: step time and gap of large models, free and pinned, in data/golden_plans.csv. Only an
// intended change may change them. A step time must be equal, but a gap may shrink. Each question covers executable
// plans, as `espalier plan` does. It also covers all plans where their result differs or where offloading matters.
// Rows that end in `long` take seconds each and run only with ESPALIER_LONG=1. ESPALIER_WRITE_GOLDEN=FILE appends all
// results to FILE, for an intended change.
#include "test/planner/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

namespace espalier::planner {
namespace {

const char *const kFile = ESPALIER_SOURCE_DIR "/test/planner/data/golden_plans.csv";

struct Model {
  const char *name;
  std::function<Problem()> build;
};

ModelShape llama(int layers, int64_t hidden, int64_t ffn, int64_t heads, int64_t kvHeads, int64_t vocab, int64_t seq) {
  ModelShape shape = gpt(layers, hidden, heads, vocab, seq);
  shape.ffn = ffn;
  shape.kvHeads = kvHeads;
  shape.gated = shape.rotary = true;
  shape.dropout = shape.tied = false;
  return shape;
}

Problem dense(const ModelShape &shape, int hosts, int64_t globalBatch) {
  return shapeProblem(shape, System{}, testMachine(hosts, 8), globalBatch);
}

// Sizes from the models' own files. Experts are included only as far as they constrain the axes.
const std::vector<Model> kModels = {
    {"gpt3_175b", [] { return dense(gpt(96, 12288, 96), 128, 1536); }},
    {"gpt2_13b", [] { return dense(gpt(40, 5120, 40), 4, 64); }},
    {"gpt2_52b", [] { return dense(gpt(64, 8192, 64), 16, 256); }},
    {"mixtral_8x7b", [] { return withExperts(dense(llama(32, 4096, 14336, 32, 8, 32000, 4096), 8, 512), 8); }},
    {"qwen3_30b", [] { return withExperts(dense(llama(48, 2048, 6144, 32, 4, 151936, 4096), 2, 512), 128); }},
    {"qwen3_235b", [] { return withExperts(dense(llama(94, 4096, 12288, 64, 4, 151936, 4096), 32, 1024), 128); }},
    {"llama2_7b", [] { return dense(llama(32, 4096, 11008, 32, 32, 32000, 4096), 2, 256); }},
    {"llama2_70b", [] { return dense(llama(80, 8192, 28672, 64, 8, 32000, 4096), 32, 1024); }},
    {"llama3_405b_1024", [] { return dense(llama(126, 16384, 53248, 128, 8, 128256, 8192), 128, 1024); }},
    {"llama3_405b_16384", [] { return dense(llama(126, 16384, 53248, 128, 8, 128256, 8192), 2048, 2048); }},
    {"gpt2_13b_offload",
     [] { return shapeProblem(gpt(40, 5120, 40), System{}, withHost(testMachine(1, 8, 40e9)), 64); }},
    {"three_lighter_of_61", [] { return firstLayersLighter(61, 3, 7168, 56, testMachine(128, 8), 1024); }},
};

struct PinSet {
  const char *name;
  std::function<void(Pins &)> pin;
};

const std::vector<PinSet> kPinSets = {
    {"free", [](Pins &) {}},
    {"tp_4_pp_4", [](Pins &pins) { pins.tp = 4, pins.pp = 4; }},
    {"full_recompute", [](Pins &pins) { pins.recompute = Recompute::Full; }},
    {"zero_3", [](Pins &pins) { pins.zero = 3; }},
    {"interleaved_2", [](Pins &pins) { pins.schedule = Schedule::Interleaved, pins.virtualStages = 2; }},
    {"pp_8_micro_batch_1", [](Pins &pins) { pins.pp = 8, pins.microBatchSize = 1; }},
};

// A line of the file: a question and its result.
struct Row {
  std::string model, pins;
  bool all = false;            ///< also plans that the executor cannot run
  double seconds = 0, gap = 0; ///< 0 seconds: there is no plan
  bool isLong = false;

  std::string question() const { return model + "," + pins + "," + (all ? "all" : "executable"); }
};

std::vector<Row> readRows() {
  std::vector<Row> rows;
  std::ifstream stream(kFile);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream cells(line);
    std::string model, pins, space, seconds, gap, isLong;
    for (std::string *cell : {&model, &pins, &space, &seconds, &gap, &isLong})
      std::getline(cells, *cell, ',');
    rows.push_back({model, pins, space == "all", std::stod(seconds), std::stod(gap), isLong == "long"});
  }
  return rows;
}

// Returns the row with the current result.
Row solve(Row row, Problem problem) {
  auto pins = std::ranges::find(kPinSets, row.pins, &PinSet::name);
  if (pins == kPinSets.end()) {
    ADD_FAILURE() << "no pins named " << row.pins;
    return row;
  }
  pins->pin(problem.pins);
  SearchOptions options;
  options.all = row.all;
  options.threads = 2;
  options.diagnose = false;
  SearchResult result = search(problem, options);
  row.seconds = row.gap = 0;
  if (result.plans.empty())
    return row;
  row.seconds = result.plans.front().prediction.stepSeconds;
  row.gap = result.statistics.optimal ? 0 : 1 - result.statistics.lowerBoundSeconds / row.seconds;
  std::printf("%-40s %12.6f s, gap %.1e, searched %.2f s\n", row.question().c_str(), row.seconds, row.gap,
              result.statistics.seconds);
  return row;
}

class GoldenPlans : public testing::TestWithParam<Model> {};

TEST_P(GoldenPlans, EqualTheFile) {
  const char *written = std::getenv("ESPALIER_WRITE_GOLDEN");
  int rows = 0;
  for (const Row &row : readRows()) {
    if (row.model != GetParam().name)
      continue;
    ++rows;
    if (row.isLong && !std::getenv("ESPALIER_LONG") && !written)
      continue;
    Row found = solve(row, GetParam().build());
    if (written) {
      char line[200];
      std::snprintf(line, sizeof line, "%s,%.12g,%.3g%s\n", row.question().c_str(), found.seconds, found.gap,
                    row.isLong ? ",long" : "");
      std::ofstream(written, std::ios::app) << line;
      continue;
    }
    EXPECT_NEAR(found.seconds, row.seconds, 1e-9 * found.seconds) << row.question();
    EXPECT_LE(found.gap, 1.01 * row.gap + 1e-6) << row.question(); // the file stores three digits
  }
  EXPECT_GE(rows, static_cast<int>(kPinSets.size()));
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenPlans, testing::ValuesIn(kModels),
                         [](const auto &info) { return info.param.name; });

} // namespace
} // namespace espalier::planner
