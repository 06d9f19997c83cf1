// Tests rule E for launches of generated kernels: rows, columns and strides match the buffers, and no divisor is 0. A
// case consists of a valid launch, one change, and the expected error text.
#include "test/runtime/toy_shapes.h"

#include <functional>
#include <gtest/gtest.h>

namespace espalier::rt::verify {
namespace {

/// Factors of an operand's access extent.
constexpr uint32_t extent = 0, columns = 1;

struct GeneratedOperand {
  const char *dims;
  std::vector<uint32_t> reach;
  uint32_t walk = 0;
};

/// A plan with one launch.
class Launch {
public:
  Launch(const char *shape, int64_t iterations, std::initializer_list<GeneratedOperand> operands,
         std::initializer_list<std::pair<pb::Kernel::Scalar, int64_t>> scalars) {
    kernel.set_shape(shape);
    kernel.set_scalars(static_cast<uint32_t>(scalars.size()));
    launch.set_extent(iterations);
    for (const GeneratedOperand &operand : operands) {
      pb::Operand &made = *kernel.add_operands();
      made.mutable_reach()->Add(operand.reach.begin(), operand.reach.end());
      made.set_walk(operand.walk);
      *launch.add_buffers() = toy(operand.dims);
    }
    for (auto [use, number] : scalars) {
      kernel.add_uses(use);
      launch.add_scalars()->set_constant(number);
    }
  }

  Launch(const Launch &) = delete;

  std::string faults() {
    PlanErrors errors;
    verifyKernels(toy.plan, errors);
    return fmt::format("{}", fmt::join(errors.list, "\n"));
  }
  pb::Affine &scalar(int index) { return *launch.mutable_scalars(index); }

private:
  Toy toy;

public:
  pb::Kernel &kernel = *toy.plan.add_kernels();
  pb::Launch &launch = *toy.plan.add_subprograms()->add_instructions()->mutable_launch();
};

constexpr auto size = pb::Kernel::SIZE, divisor = pb::Kernel::DIVISOR, number = pb::Kernel::NUMBER;

/// A launch over rows [batch, seq] with columns [vocab]. x and the result are [batch, seq, vocab], y is [seq, vocab].
Launch rowKernel() {
  return {"row",
          24,
          {{"bsv", {extent, columns}}, {"sv", {3, columns}, 2}, {"bsv", {extent, columns}}},
          {{size, 128}, {divisor, 1}, {size, 6}, {size, 128}, {number, 0}}};
}

/// A launch that sums over the rows [batch, seq] in two blocks. No operand contains all rows.
Launch columnKernel() {
  return {"column",
          2,
          {{"sv", {5, columns}, 4}, {"bv", {8, columns}, 7}, {"pv", {extent, columns}}},
          {{size, 128},
           {size, 24},
           {pb::Kernel::BLOCK_ROWS, 12},
           {divisor, 1},
           {size, 6},
           {size, 128},
           {divisor, 6},
           {size, 4},
           {size, 128}}};
}

struct LaunchCase {
  const char *name, *expected; ///< empty: no error
  Launch (*make)();
  std::function<void(Launch &)> change;
};

const LaunchCase cases[] = {
    {"Row", "", rowKernel, [](Launch &) {}},
    {"Column", "", columnKernel, [](Launch &) {}},
    {"StrideBeyondARow", "buffer 1 is not walked through all of its rows by 24 rows", rowKernel,
     [](Launch &l) { l.scalar(3).set_constant(129); }},
    {"DivisorByLayer", "a divisor is a constant from 1 to 2147483647", rowKernel,
     [](Launch &l) { l.scalar(1).set_layer(-1); }},
    {"DivisorZero", "scalar 1 is 0, a divisor is a constant", rowKernel,
     [](Launch &l) { l.scalar(1).set_constant(0); }},
    {"DivisorThatLeavesRowsOut", "buffer 1 is not walked through all of its rows by 24 rows", rowKernel,
     [](Launch &l) { l.scalar(1).set_constant(5); }},
    {"OtherNumber", "", rowKernel, [](Launch &l) { l.scalar(4).set_tp(127); }},
    {"WalkElsewhere", "buffer 1 is walked by scalars that say nothing of what is reached", rowKernel,
     [](Launch &l) { l.kernel.mutable_operands(1)->set_walk(3); }},
    {"RowsTwice", "goes through 48 rows, its buffers have 24", columnKernel,
     [](Launch &l) {
       l.scalar(1).set_constant(48);
       l.scalar(2).set_constant(24);
     }},
    {"ColumnsThatNoBufferHas", "goes through 2 columns, its buffers have one",
     [] { return Launch("row", 24, {{"bs", {extent}}}, {{size, 1}}); }, [](Launch &l) { l.scalar(0).set_constant(2); }},
    {"RowsThatNoBufferHas", "goes through 2 rows, its buffers have 1",
     [] { return Launch("row", 1, {{"v", {columns}}}, {{size, 128}}); }, [](Launch &l) { l.launch.set_extent(2); }},
};

class Generated : public testing::TestWithParam<LaunchCase> {};

TEST_P(Generated, MatchTheRowsOfTheirBuffers) {
  Launch launch = GetParam().make();
  EXPECT_EQ(launch.faults(), "");
  GetParam().change(launch);
  std::string faults = launch.faults(), expected = GetParam().expected;
  EXPECT_EQ(faults.empty(), expected.empty()) << faults;
  EXPECT_NE(faults.find(expected), std::string::npos) << faults;
}

INSTANTIATE_TEST_SUITE_P(Rule, Generated, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace espalier::rt::verify
