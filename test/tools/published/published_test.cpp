// Compares the planner with published measurements. A threshold is the required error if the planner reaches it,
// otherwise the reached error, rounded up a little. README.md gives the reasons.
#include "tools/published/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

using namespace espalier;

namespace {

/// Prices a table once. Returns null if it is not here.
const TableReport *report(const std::string &name) {
  static RunPricer pricer;
  static std::map<std::string, TableReport> reports;
  if (auto known = reports.find(name); known != reports.end())
    return &known->second;
  const char *shared = std::getenv("ESPALIER_SHARED");
  std::string folder = shared ? shared : ESPALIER_SOURCE_DIR "/../shared";
  std::ifstream file(folder + "/published/" + name);
  if (!file)
    return nullptr;
  std::stringstream text;
  text << file.rdbuf();
  PublishedTable table = readTable(text.str());
  EXPECT_TRUE(table.faults.empty());
  return &reports.emplace(name, evaluateTable(name, table.rows, pricer)).first->second;
}

struct Wanted {
  const char *name;
  int timeRows;
  double timeError;
  int memoryRows;
  double memoryError;
  bool beatsNullModel = true;
};

class Published : public testing::TestWithParam<Wanted> {};

TEST_P(Published, StaysWithinTheErrorReachedAndBeatsTheNullModel) {
  const Wanted &wanted = GetParam();
  const TableReport *found = report(wanted.name);
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
                         testing::Values(Wanted{"korthikanti_2022_table5.csv", 10, 0.014, 0, 0},
                                         Wanted{"narayanan_sc21_table1.csv", 10, 0.032, 0, 0},
                                         Wanted{"calculon_validation.csv", 8, 0.013, 0, 0},
                                         Wanted{"bloom_jeanzay_a100_sweep.csv", 60, 0.037, 44, 0.041},
                                         Wanted{"korthikanti_2022_memory_fig1_fig7.csv", 0, 0, 8, 0.059},
                                         Wanted{"llm_foundry_mpt.csv", 108, 0.06, 0, 0},
                                         Wanted{"megatron_bridge_perf.csv", 83, 0.156, 0, 0},
                                         Wanted{"bigscience_v100.csv", 71, 0.204, 11, 0.074},
                                         Wanted{"torchtitan_llama3_h100.csv", 15, 0.082, 9, 0.091}));

} // namespace

TEST(Published, MemoryOfAllRowsThatPublishItIsWithinSixPerCent) {
  MeanError memory;
  for (const char *name : {"alpa_readme.csv", "bigscience_v100.csv", "bloom_jeanzay_a100_sweep.csv",
                           "korthikanti_2022_memory_fig1_fig7.csv", "torchtitan_llama3_h100.csv"}) {
    const TableReport *found = report(name);
    if (!found)
      GTEST_SKIP() << "the table " << name << " is not here";
    memory.rows += found->memory.rows, memory.sum += found->memory.sum;
  }
  EXPECT_EQ(memory.rows, 73);
  EXPECT_LE(memory.mean(), 0.058);
}

TEST(Published, OutOfMemoryRowsAreRefusedAndFewRunsThatFit) {
  int outOfMemory = 0, outOfMemoryRefused = 0, fits = 0, fitsRefused = 0;
  for (const char *name :
       {"korthikanti_2022_table5.csv", "narayanan_sc21_table1.csv", "bloom_jeanzay_a100_sweep.csv",
        "llm_foundry_mpt.csv", "megatron_bridge_perf.csv", "torchtitan_llama3_h100.csv", "bigscience_v100.csv"}) {
    const TableReport *found = report(name);
    if (!found)
      GTEST_SKIP() << "the table " << name << " is not here";
    outOfMemory += found->outOfMemory, outOfMemoryRefused += found->outOfMemoryRefused;
    fits += found->fits, fitsRefused += found->fitsRefused;
  }
  EXPECT_EQ(outOfMemory, 3);
  EXPECT_EQ(outOfMemoryRefused, outOfMemory);
  EXPECT_GE(fits, 360);
  EXPECT_LE(fitsRefused, 15);
}

TEST(Published, RanksPlansOfOneModel) {
  const TableReport *bloom = report("bloom_jeanzay_a100_sweep.csv");
  if (!bloom)
    GTEST_SKIP() << "the table is not here";
  auto group = std::find_if(bloom->groups.begin(), bloom->groups.end(), [](const RankedGroup &group) {
    return group.name.starts_with("BLOOM-family 181B, 72 x 14336 with 64 heads");
  });
  ASSERT_NE(group, bloom->groups.end());
  EXPECT_EQ(group->plans, 11);
  EXPECT_EQ(group->rows, 13);
  EXPECT_GE(group->spearman, 0.85);
  EXPECT_LE(group->regret, 0.02);
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
  RunPricer pricer;
  return evaluateTable("table", rows, pricer);
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
// within 12 % from four devices on. On one device our prediction is a quarter too fast.
TEST(Published, WithoutAPlanTheBestPlanIsCompared) {
  const TableReport *aceso = report("aceso_reference_v100.csv");
  if (!aceso)
    GTEST_SKIP() << "the table is not here";
  EXPECT_TRUE(aceso->priced.empty());
  ASSERT_EQ(aceso->searched.size(), 5u);
  for (const SearchedRow &row : aceso->searched) {
    double ratio = row.predictedSeconds / row.seconds;
    EXPECT_GT(ratio, row.line == 2 ? 0.74 : 0.9) << row.name << " " << row.plan;
    EXPECT_LT(ratio, 1.12) << row.name << " " << row.plan;
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
