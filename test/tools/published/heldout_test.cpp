// Compares the planner with published runs that were not used for fitting (sources: data/SOURCES.md). Each bound is the
// reached error, rounded up a little. tools/published/README.md has the errors at first sight.
#include "tools/published/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

using namespace espalier;

namespace {

std::vector<PublishedRow> heldoutRows() {
  std::ifstream file(ESPALIER_SOURCE_DIR "/test/tools/published/data/heldout.csv");
  std::stringstream text;
  text << file.rdbuf();
  PublishedTable table = readTable(text.str());
  EXPECT_TRUE(table.faults.empty());
  return table.rows;
}

bool holds(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

// The rows of one table with a given source and gpu.
struct Table {
  const char *name, *source, *gpu;
  int timeRows;
  double timeError;
  int memoryRows = 0;
  double memoryError = 0;
};

constexpr Table tables[] = {
    {"NeMo 24.07, H100", "NVIDIA/NeMo docs", "", 15, 0.085},
    {"NeMo 24.09, H100", "user-guide/24.09", "", 12, 0.085},
    {"NeMo 25.02, B200", "performance_summary", "B200", 7, 0.098},
    {"NeMo 25.04, GB200", "25.04-performance", "", 7, 0.08},
    {"recipes, GPT3-175B, H100", "README_175b", "", 10, 0.021},
    {"recipes, Nemotron-15B, H100", "README_15b", "", 16, 0.017},
    {"recipes, Nemotron-340B, H100", "README_340b", "", 10, 0.014},
    {"recipes, Llama3-8B, H100", "README_8b", "", 10, 0.085},
    {"recipes, Llama3-70B, H100", "README_70b", "", 12, 0.066},
    {"recipes, Llama3-405B, H100", "README_405b", "", 12, 0.046},
    {"recipes of 2025, H100", "README.md@1f6d9f40e411", "H100", 6, 0.03},
    {"recipes of 2025, GB200", "README.md@1f6d9f40e411", "GB200", 18, 0.054},
    {"Paxml, GPT3-5B, H100", "paxml", "", 8, 0.057},
    {"torchtitan, A100", "torchtitan docs", "", 6, 0.07},
    {"torchtitan, H200", "torchtitan bench", "", 2, 0.057, 2, 0.326},
    {"FMS and TinyLlama, A100, FSDP", "README", "A100", 5, 0.115},
    {"Megatron-LM of 2020, V100", "tables.tex", "V100", 4, 0.18},
    {"Megatron-LM of 2020, A100", "tables.tex", "A100", 8, 0.153},
    {"Megatron-LM of 2021, V100", "DLPerf Megatron", "", 18, 0.149, 18, 0.191},
    {"OneFlow, V100", "DLPerf OneFlow", "", 18, 0.19, 18, 0.242},
    {"ModelLink, Ascend 910B", "ModelLink", "", 7, 0.073},
    {"Qwen, A100, DeepSpeed", "Qwen", "", 9, 0.668, 9, 0.122},
};

/// Prices all rows once.
const TableReport &all() {
  static const TableReport report = [] {
    RunPricer pricer;
    return evaluateTable("all", heldoutRows(), pricer);
  }();
  return report;
}

struct Errors {
  MeanError time, memory;
};

/// Returns the errors of the rows of one table.
Errors errorsOf(const Table &table) {
  std::set<int> lines;
  for (const PublishedRow &row : heldoutRows()) {
    const std::string &source = row.text("source");
    bool isFsdp = holds(table.name, "FSDP");
    bool isWanted = isFsdp ? holds(source, "fms-fsdp") || holds(source, "TinyLlama") : holds(source, table.source);
    if (isWanted && holds(row.text("gpu"), table.gpu))
      lines.insert(row.line);
  }
  Errors errors;
  for (const PricedRow &row : all().priced) {
    if (!lines.contains(row.line))
      continue;
    if (row.seconds > 0 && !row.isRange)
      ++errors.time.rows, errors.time.sum += std::abs(row.predictedSeconds / row.seconds - 1);
    if (row.gibibytes > 0)
      ++errors.memory.rows, errors.memory.sum += std::abs(row.predictedGibibytes / row.gibibytes - 1);
  }
  return errors;
}

class Heldout : public testing::TestWithParam<Table> {};

TEST_P(Heldout, StaysWithinTheErrorReached) {
  const Table &wanted = GetParam();
  Errors found = errorsOf(wanted);
  std::printf("%s: time %.2f %% over %d, memory %.2f %% over %d\n", wanted.name, 100 * found.time.mean(),
              found.time.rows, 100 * found.memory.mean(), found.memory.rows);
  EXPECT_EQ(found.time.rows, wanted.timeRows);
  EXPECT_LE(found.time.mean(), wanted.timeError);
  EXPECT_EQ(found.memory.rows, wanted.memoryRows);
  EXPECT_LE(found.memory.mean(), wanted.memoryError);
}

INSTANTIATE_TEST_SUITE_P(Tables, Heldout, testing::ValuesIn(tables));

} // namespace

TEST(HeldoutRows, AllAreEvaluatedOrCounted) {
  std::printf("%s", printReport(all(), /*perRow=*/false).c_str());
  int skipped = 0;
  for (const auto &[reason, count] : all().skipped)
    skipped += count;
  EXPECT_EQ(all().rows, 243);
  EXPECT_EQ(skipped + static_cast<int>(all().priced.size()), all().rows);
  EXPECT_EQ(all().time.rows, 221);
  EXPECT_LE(all().time.mean(), 0.120);
  EXPECT_LE(std::abs(all().bias.mean()), 0.04);
  EXPECT_EQ(all().ranges, 5);
  EXPECT_LE(all().fitsRefused, 2);
  EXPECT_EQ(all().outOfMemory, 1);
  EXPECT_EQ(all().outOfMemoryRefused, 1);
}
