// Compares the planner with published measurements. A threshold is the required error if the planner reaches it,
// otherwise the reached error, rounded up a little. README.md gives the reasons.
#include "tools/published/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

using namespace espalier;

namespace {

/// All tests share the profiles of the models.
RunPricer &pricer() {
  static RunPricer shared;
  return shared;
}

// Returns the rows of a table with the given `gpu` and `model`. `isZero3` selects only rows with DeepSpeed's ZeRO 3, or
// only rows without.
std::optional<TableReport> report(const std::string &name, const std::string &gpu = "", const std::string &model = "",
                                  std::optional<bool> isZero3 = std::nullopt) {
  const char *shared = std::getenv("ESPALIER_SHARED");
  std::string folder = shared ? shared : ESPALIER_SOURCE_DIR "/../shared";
  std::ifstream file(folder + "/published/" + name);
  if (!file)
    return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  PublishedTable table = readTable(text.str());
  EXPECT_TRUE(table.faults.empty());
  std::erase_if(table.rows, [&](const PublishedRow &row) {
    bool ran = row.text("zero").starts_with("DeepSpeed ZeRO");
    return row.text("gpu").find(gpu) == std::string::npos || row.text("model").find(model) == std::string::npos ||
           isZero3.value_or(ran) != ran;
  });
  return evaluateTable(name, table.rows, pricer());
}

struct Wanted {
  const char *name;
  int timeRows;
  double timeError;
  int memoryRows;
  double memoryError;
  const char *gpu = "", *model = "";
  std::optional<bool> isZero3 = std::nullopt;
  bool beatsNullModel = true;
};

class Published : public testing::TestWithParam<Wanted> {};

TEST_P(Published, StaysWithinTheErrorReachedAndBeatsTheNullModel) {
  const Wanted &wanted = GetParam();
  std::optional<TableReport> found = report(wanted.name, wanted.gpu, wanted.model, wanted.isZero3);
  if (!found)
    GTEST_SKIP() << "the table " << wanted.name << " is not here";
  EXPECT_GE(found->time.rows, wanted.timeRows);
  EXPECT_LE(found->time.mean(), wanted.timeError) << printReport(*found, /*perRow=*/true);
  EXPECT_GE(found->memory.rows, wanted.memoryRows);
  EXPECT_LE(found->memory.mean(), wanted.memoryError) << printReport(*found, /*perRow=*/true);
  if (found->time.rows && wanted.beatsNullModel)
    EXPECT_LT(found->time.mean(), found->nullTime.mean());
  int skipped = 0;
  for (const auto &[reason, rows] : found->skipped)
    skipped += rows;
  EXPECT_EQ(skipped + static_cast<int>(found->priced.size()),
            found->rows); // no row is dropped silently
}

INSTANTIATE_TEST_SUITE_P(Tables, Published,
                         testing::Values(Wanted{"korthikanti_2022_table5.csv", 10, 0.012, 0, 0},
                                         Wanted{"narayanan_sc21_table1.csv", 10, 0.015, 0, 0},
                                         Wanted{"bloom_jeanzay_a100_sweep.csv", 60, 0.035, 44, 0.039},
                                         Wanted{"korthikanti_2022_memory_fig1_fig7.csv", 0, 0, 8, 0.001},
                                         Wanted{"llm_foundry_mpt.csv", 108, 0.048, 0, 0},
                                         Wanted{"megatron_bridge_perf.csv", 8, 0.08, 0, 0, "H100"},
                                         Wanted{"megatron_bridge_perf.csv", 48, 0.059, 0, 0},
                                         Wanted{"bigscience_v100.csv", 39, 0.19, 11, 0.067, "", "", false},
                                         Wanted{"bigscience_v100.csv", 32, 0.41, 0, 0, "", "", true, false},
                                         Wanted{"bigscience_v100.csv", 71, 0.29, 11, 0.067, "", "", std::nullopt,
                                                false},
                                         Wanted{"torchtitan_llama3_h100.csv", 15, 0.055, 9, 0.043},
                                         Wanted{"torchtitan_llama3_h100.csv", 8, 0.068, 5, 0.031, "", "8B"},
                                         Wanted{"torchtitan_llama3_h100.csv", 4, 0.012, 1, 0.022, "", "70B"},
                                         Wanted{"torchtitan_llama3_h100.csv", 3, 0.08, 3, 0.07, "", "405B"}));

} // namespace

TEST(Published, MemoryOfAllRowsThatPublishItIsWithinFourPerCent) {
  MeanError memory;
  for (const char *name : {"alpa_readme.csv", "bigscience_v100.csv", "bloom_jeanzay_a100_sweep.csv",
                           "korthikanti_2022_memory_fig1_fig7.csv", "torchtitan_llama3_h100.csv"}) {
    std::optional<TableReport> found = report(name);
    if (!found)
      GTEST_SKIP() << "the table " << name << " is not here";
    memory.rows += found->memory.rows, memory.sum += found->memory.sum;
  }
  EXPECT_EQ(memory.rows, 73);
  EXPECT_LE(memory.mean(), 0.04);
}

TEST(Published, OutOfMemoryRowsAreRefusedAndRunsThatFitAreNot) {
  int outOfMemory = 0, outOfMemoryRefused = 0, fits = 0, fitsRefused = 0;
  for (const char *name :
       {"korthikanti_2022_table5.csv", "narayanan_sc21_table1.csv", "bloom_jeanzay_a100_sweep.csv",
        "llm_foundry_mpt.csv", "megatron_bridge_perf.csv", "torchtitan_llama3_h100.csv", "bigscience_v100.csv"}) {
    std::optional<TableReport> found = report(name);
    if (!found)
      GTEST_SKIP() << "the table " << name << " is not here";
    outOfMemory += found->outOfMemory, outOfMemoryRefused += found->outOfMemoryRefused;
    fits += found->fits, fitsRefused += found->fitsRefused;
  }
  EXPECT_EQ(outOfMemory, 3);
  EXPECT_EQ(outOfMemoryRefused, outOfMemory);
  EXPECT_GE(fits, 325);
  EXPECT_LE(fitsRefused, 0.02 * fits);
}

TEST(Published, RanksPlansOfOneModel) {
  std::optional<TableReport> bloom = report("bloom_jeanzay_a100_sweep.csv");
  if (!bloom)
    GTEST_SKIP() << "the table is not here";
  auto group = std::find_if(bloom->groups.begin(), bloom->groups.end(), [](const RankedGroup &group) {
    return group.name.starts_with("BLOOM-family 181B, 72 x 14336 with 64 heads");
  });
  ASSERT_NE(group, bloom->groups.end());
  EXPECT_EQ(group->plans, 11);
  EXPECT_EQ(group->rows, 13);
  EXPECT_GE(group->spearman, 0.9 - 1e-9);
  EXPECT_LE(group->regret, 0.01);
}

namespace {

// Returns the report of rows of one model that differ in tp. Row i has tp 2^i and the measured `seconds`.
TableReport reportOf(const std::vector<std::vector<double>> &seconds) {
  std::vector<PublishedRow> rows;
  for (size_t i = 0; i < seconds.size(); ++i)
    for (double each : seconds[i]) {
      PublishedRow row;
      std::string tp = std::to_string(1 << i), dp = std::to_string(16 >> i);
      row.columns = {{"model", "GPT"},
                     {"layers", "8"},
                     {"hidden", "1024"},
                     {"heads", "16"},
                     {"seq", "512"},
                     {"gpu", "H200"},
                     {"n_gpus", "16"},
                     {"precision", "bf16"},
                     {"tp", tp},
                     {"pp", "1"},
                     {"dp", dp},
                     {"mbs", "1"},
                     {"gbs", "32"},
                     {"status", "ok"},
                     {"recompute", "none"},
                     {"iter_time_s", std::to_string(each)}};
      rows.push_back(std::move(row));
    }
  return evaluateTable("table", rows, pricer());
}

} // namespace

TEST(PublishedReport, AveragesRepeatedMeasurementsAndReportsTheNoise) {
  TableReport once = reportOf({{1}, {2}, {4}});
  ASSERT_EQ(once.groups.size(), 1u);
  EXPECT_EQ(once.repeats, 0);
  EXPECT_EQ(once.noise, 0);
  EXPECT_EQ(once.groups[0].exactSpearman, 1);
  TableReport twice = reportOf({{1, 3}, {1.5}, {4}}); // the mean of the first plan is 2
  ASSERT_EQ(twice.groups.size(), 1u);
  EXPECT_EQ(twice.groups[0].plans, 3);
  EXPECT_EQ(twice.groups[0].rows, 4);
  EXPECT_EQ(twice.repeats, 1);
  EXPECT_NEAR(twice.noise, std::sqrt(0.5), 1e-9);
  EXPECT_LT(twice.groups[0].exactSpearman, 0.9);
  EXPECT_NEAR(twice.groups[0].spearman, 0.5, 1e-9);
  EXPECT_NEAR(twice.groups[0].regret, 2 / 1.5 - 1, 1e-9);
  EXPECT_TRUE(reportOf({{1, 1}, {2}}).groups.empty()); // two plans are too few for a rank correlation
}

TEST(PublishedReport, AnErrorOverNoRowsIsNotZero) {
  TableReport empty;
  EXPECT_EQ(printReport(empty, /*perRow=*/false).find("0.00 %"), std::string::npos);
  empty.memory = {2, 0.1};
  EXPECT_NE(printReport(empty, /*perRow=*/false).find("time of no row; memory 5.00 % over 2"), std::string::npos);
}

// Aceso publishes times but not its plans. On the same machine and batch, our best plan has the time of its plans
// within 11 % from four devices on. On one device our prediction is a quarter too fast.
TEST(Published, WithoutAPlanTheBestPlanIsCompared) {
  std::optional<TableReport> aceso = report("aceso_reference_v100.csv");
  if (!aceso)
    GTEST_SKIP() << "the table is not here";
  EXPECT_TRUE(aceso->priced.empty());
  ASSERT_EQ(aceso->searched.size(), 5u);
  for (const SearchedRow &row : aceso->searched) {
    double ratio = row.predictedSeconds / row.seconds;
    EXPECT_GT(ratio, row.line == 2 ? 0.74 : 0.9) << row.name << " " << row.plan;
    EXPECT_LT(ratio, 1.11) << row.name << " " << row.plan;
  }
}

TEST(Published, SpearmanIsOneForEqualOrdersAndSharesTies) {
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {10, 20, 30}), 1);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {3, 2, 1}), -1);
  EXPECT_NEAR(spearman({1, 2, 2, 3}, {1, 2, 3, 4}), 0.9487, 1e-4);
  EXPECT_DOUBLE_EQ(spearman({1, 1}, {1, 2}), 0);
}

namespace {

std::string faultsOf(const std::string &csv) {
  std::string text;
  for (const TableFault &fault : readTable(csv).faults)
    text += std::to_string(fault.line) + ": " + fault.message + "\n";
  return text;
}

} // namespace

TEST(PublishedTable, CellsInQuotesHoldCommasQuotesAndLines) {
  PublishedTable table = readTable("\xEF\xBB\xBFgpu,notes\r\n1,\"x, \"\"y\"\"\nz\"\r\n\n2,\n");
  EXPECT_TRUE(table.faults.empty());
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].text("notes"), "x, \"y\"\nz");
  EXPECT_EQ(table.rows[1].line, 5);
}

TEST(PublishedTable, ReportsFormatErrorsWithTheirLine) {
  EXPECT_EQ(faultsOf(""), "1: no heading: the first line has to name the columns\n");
  EXPECT_EQ(faultsOf("gpu,tp\nH100,1\nH100,1,2\nH100\n"),
            "3: the row has 3 cells, the heading has 2\n4: the row has 1 cells, the heading has 2\n");
  EXPECT_EQ(faultsOf("gpu,tp\nH100,1\n\"H100,1\n"), "3: a quote is opened here and never closed\n");
  EXPECT_EQ(faultsOf("gpu,tp,tp\n"), "1: column 'tp' is there twice\n");
  std::string other = faultsOf("a,b\nx,y,z\n"); // one error for the table, not one per row
  EXPECT_EQ(other.substr(0, 18), "1: no column 'gpu'");
  EXPECT_EQ(std::count(other.begin(), other.end(), '\n'), 1);
}
