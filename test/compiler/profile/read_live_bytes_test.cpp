// Reads the live bytes of a program as formulas in samples and in the axes that shard them.
#include "compiler/profile/read_live_bytes.h"
#include "dialects/register.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace espalier;
using namespace mlir;
using planner::Axis;
using planner::Size;

namespace {

constexpr int dp = static_cast<int>(Axis::Dp), cp = static_cast<int>(Axis::Cp), ep = static_cast<int>(Axis::Ep);

/// A program with 2 samples, 8 positions on 2 context ranks, and 16 hidden values on 4 tensor ranks. Buffers
/// 0 and 1 are shards of the stream, 2 is a gathered sequence and 3 has sums over it. Buffer 1 overwrites buffer 0, and
/// buffer 3 is live to the end.
constexpr const char *program = R"(
exec.kernel @k "flat" split 1 {
^bb0(%a: tensor<2x4x16xf32, #model.dims<batch, seq, hidden>>):
  exec.yield %a : tensor<2x4x16xf32, #model.dims<batch, seq, hidden>>
}
exec.program @p attributes {buffer_types = [
    tensor<2x4x16xf32, #model.dims<batch, seq, hidden>>, tensor<2x4x16xf32, #model.dims<batch, seq, hidden>>,
    tensor<2x8x4xbf16, #model.dims<batch, seq, hidden>>, tensor<4xf32, #model.dims<hidden>>]} {
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 3, bytes = 16>], types = [f32],
      sizes = array<i64: 4>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 0, bytes = 512>], types = [f32],
      sizes = array<i64: 128>}
  exec.launch {kernel = @k, buffers = [#exec.buffer<region = "virtual", offset = 0, bytes = 512>,
      #exec.buffer<region = "virtual", offset = 1, bytes = 512>],
               outputs = 1, scalars = [], extent = 1, grain = 1, in_place = array<i64: 1, 0>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 2, bytes = 128>],
      types = [bf16], sizes = array<i64: 64>}
  exec.call {function = "zero", buffers = [#exec.buffer<region = "virtual", offset = 3, bytes = 16>], types = [f32],
      sizes = array<i64: 4>}
}
)";

TEST(ReadLiveBytes, SumsTensorsThatAreLiveTogether) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(program, &context);
  ASSERT_TRUE(module);
  ModelDescription model;
  model.dims = {{"hidden", 16}, {"seq", 8}};
  SizeReader sizes(model, {{"hidden", 16}, {"seq", 8}},
                   {/*samples=*/2, /*dp=*/3, /*tp=*/4, /*ep=*/1, /*zero=*/0, /*sequenceParallel=*/false, /*cp=*/2});
  std::vector<Size> live;
  addLiveBytes(module->lookupSymbol<exec::ProgramOp>("p"), sizes, live);
  keepLargest(live);
  // 16 bytes of sums and, per sample, 16 x 8 / cp x 4 bytes of stream or 4 x 8 x 2 bytes of the gathered sequence.
  Size stream = {{512, {{dp, -1}, {cp, -1}, {ep, -1}, {planner::kBatchSymbol, 1}}}, {16, {}}},
       gathered = {{64, {{dp, -1}, {ep, -1}, {planner::kBatchSymbol, 1}}}, {16, {}}};
  auto sorted = [](std::vector<Size> sizes) {
    for (Size &size : sizes)
      std::ranges::sort(size, {}, [](const planner::Monomial &part) { return part.coefficient; });
    std::ranges::sort(sizes, {}, [](const Size &size) { return size.back().coefficient; });
    return sizes;
  };
  EXPECT_EQ(sorted(live), sorted({gathered, stream}));
}

TEST(ReadLiveBytes, KeepsSizesThatAreLargestForSomePlan) {
  Size samples = {{8, {{planner::kBatchSymbol, 1}}}}, fixed = {{2, {}}, {4, {{planner::kBatchSymbol, 1}}}};
  std::vector<Size> sizes = {{{2, {{planner::kBatchSymbol, 1}}}}, samples, fixed, {{1, {}}}, samples};
  keepLargest(sizes);
  EXPECT_EQ(sizes, (std::vector<Size>{samples, fixed}));
}

} // namespace
