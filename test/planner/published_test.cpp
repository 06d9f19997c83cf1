// The planner against published measurements. Thresholds are what is reached, a little rounded up;
// README.md says what was asked for and not reached.
#include "planner/published_report.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

using namespace espalier::planner;

namespace {

std::optional<TableReport> report(const std::string &name) {
  const char *shared = std::getenv("ESPALIER_SHARED");
  std::string folder = shared ? shared : ESPALIER_SOURCE_DIR "/../shared";
  std::ifstream file(folder + "/published/" + name);
  if (!file)
    return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  return evaluateTable(name, text.str());
}

struct Wanted {
  const char *name;
  int timeRows;
  double timeError;
  int memoryRows;
  double memoryError;
};

class Published : public testing::TestWithParam<Wanted> {};

TEST_P(Published, StaysWithinTheErrorReachedAndBeatsTheNullModel) {
  const Wanted &wanted = GetParam();
  std::optional<TableReport> found = report(wanted.name);
  if (!found)
    GTEST_SKIP() << "the table " << wanted.name << " is not here";
  EXPECT_GE(found->time.rows, wanted.timeRows);
  EXPECT_LE(found->time.mean(), wanted.timeError) << printReport(*found, /*perRow=*/true);
  EXPECT_GE(found->memory.rows, wanted.memoryRows);
  EXPECT_LE(found->memory.mean(), wanted.memoryError) << printReport(*found, /*perRow=*/true);
  if (found->time.rows)
    EXPECT_LT(found->time.mean(), found->nullTime.mean());
  int skipped = 0;
  for (const auto &[reason, rows] : found->skipped)
    skipped += rows;
  EXPECT_EQ(skipped + static_cast<int>(found->priced.size()),
            found->rows); // no row is dropped silently
}

INSTANTIATE_TEST_SUITE_P(
    Tables, Published,
    testing::Values(Wanted{"korthikanti_2022_table5.csv", 10, 0.03, 0, 0},
                    Wanted{"narayanan_sc21_table1.csv", 10, 0.038, 0, 0},
                    Wanted{"bloom_jeanzay_a100_sweep.csv", 60, 0.083, 44, 0.066},
                    Wanted{"korthikanti_2022_memory_fig1_fig7.csv", 0, 0, 8, 0.038},
                    Wanted{"llm_foundry_mpt.csv", 108, 0.067, 0, 0},
                    Wanted{"megatron_bridge_perf.csv", 9, 0.084, 0, 0},
                    Wanted{"torchtitan_llama3_h100.csv", 12, 0.115, 6, 0.195}));

} // namespace

TEST(Published, OutOfMemoryRowsAreRefusedAndRunsThatFitAreNot) {
  std::optional<TableReport> bloom = report("bloom_jeanzay_a100_sweep.csv");
  if (!bloom)
    GTEST_SKIP() << "the table is not here";
  EXPECT_EQ(bloom->outOfMemory, 3);
  EXPECT_EQ(bloom->outOfMemoryRefused, bloom->outOfMemory);
  EXPECT_EQ(bloom->fitsRefused, 0);
}

TEST(Published, SpearmanIsOneForEqualOrdersAndSharesTies) {
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {10, 20, 30}), 1);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {3, 2, 1}), -1);
  EXPECT_NEAR(spearman({1, 2, 2, 3}, {1, 2, 3, 4}), 0.9487, 1e-4);
  EXPECT_DOUBLE_EQ(spearman({1, 1}, {1, 2}), 0);
}

TEST(Published, RowsThatCannotBeReadAreCounted) {
  std::vector<std::string> faults;
  std::vector<PublishedRow> rows = readRows("a,b\n1,\"x, \"\"y\"\"\"\n1,2,3\n", &faults);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].text("b"), "x, \"y\"");
  EXPECT_EQ(faults, std::vector<std::string>{"row 3 has 3 cells, wanted 2"});
  EXPECT_EQ(caseOf(rows[0]).reason, "no layers published");
}
