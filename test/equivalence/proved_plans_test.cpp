// Verifies plans of the suite, compiled for the CPU and for GPUs, without running them. ESPALIER_PROVED_ALL covers all
// rows instead of a selection.
#include "runtime/verify_plan.h"

#include "test/equivalence/emulated_rows.h"
#include "test/host_options.h"

#include <cstdlib>
#include <gmock/gmock.h>

namespace espalier {
namespace {

using testing::IsEmpty;

class ProvedPlan : public testing::TestWithParam<std::tuple<EmulatedRow, std::string>> {};

TEST_P(ProvedPlan, SatisfiesTheRules) {
  const auto &[row, target] = GetParam();
  RunConfig run = target == "cuda" ? runOf(row) : equivalenceRun(row.file, row.sets);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  CompileOptions options = hostOptions();
  options.target = target;
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, row.split), options);
  ASSERT_TRUE(compiled);
  EXPECT_THAT(rt::verifyPlan(compiled->plan), IsEmpty());
}

/// Returns every n-th row.
std::vector<EmulatedRow> rowsWanted() {
  size_t stride = std::getenv("ESPALIER_PROVED_ALL") ? 1 : 11;
  std::vector<EmulatedRow> all = allRows(), wanted;
  for (size_t i = 0; i < all.size(); i += stride)
    wanted.push_back(all[i]);
  return wanted;
}

std::string nameOf(const testing::TestParamInfo<ProvedPlan::ParamType> &info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Suite, ProvedPlan,
                         testing::Combine(testing::ValuesIn(rowsWanted()), testing::Values("cpu", "cuda")), nameOf);

} // namespace
} // namespace espalier
