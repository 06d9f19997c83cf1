// Tests rule G for instructions: partial sums may only be added, and sums over a sharded dimension are partial. A case
// consists of one instruction and the expected error text.
#include "test/runtime/toy_shapes.h"

#include <functional>
#include <gtest/gtest.h>

namespace espalier::rt::verify {
namespace {

struct Case {
  const char *name, *expected; ///< empty: no error
  std::function<pb::Instruction(Toy &)> make;
};

pb::Instruction product(Toy &toy, std::initializer_list<pb::Buffer> buffers) {
  pb::Instruction instruction;
  *instruction.mutable_call() = toy.call(pb::LibraryCall::MATMUL, buffers, {24, 16, 20, 1});
  return instruction;
}

pb::Instruction epilogue(Toy &toy, pb::LibraryCall::Epilogue does, std::initializer_list<pb::Buffer> buffers) {
  pb::Instruction instruction = product(toy, buffers);
  instruction.mutable_call()->set_epilogue(does);
  return instruction;
}

/// A buffer as an operand of a kernel.
struct Use {
  pb::Buffer buffer;
  pb::Operand::Access access = pb::Operand::READ;
  uint32_t linear = 0;
  bool reduces = false;
};

pb::Instruction kernel(Toy &toy, std::initializer_list<Use> uses) {
  pb::Instruction instruction;
  pb::Kernel &made = *toy.plan.add_kernels();
  for (const Use &use : uses) {
    pb::Operand &operand = *made.add_operands();
    operand.set_access(use.access);
    operand.set_linear(use.linear);
    operand.set_reduces(use.reduces);
    *instruction.mutable_launch()->add_buffers() = use.buffer;
  }
  return instruction;
}

pb::Buffer greatest(Toy &toy, const std::string &dims, uint32_t partial) {
  pb::Buffer buffer = toy(dims, partial);
  toy.plan.mutable_values(static_cast<int>(buffer.value()))->set_reduction(pb::MAX);
  return buffer;
}

/// A kernel that needs the complete sum over the columns of a row, which are its innermost dimensions.
pb::Instruction softmax(Toy &toy, const std::string &dims, int64_t columns) {
  pb::Instruction instruction = kernel(toy, {{toy(dims)}, {toy(dims), pb::Operand::WRITE}});
  pb::Kernel &made = *toy.plan.mutable_kernels(0);
  made.set_whole_columns(true);
  for (pb::Operand &operand : *made.mutable_operands())
    for (uint32_t factor : {0, 1}) // factors: rows and columns
      operand.add_reach(factor);
  instruction.mutable_launch()->add_scalars()->set_constant(columns);
  return instruction;
}

constexpr auto read = pb::Operand::READ, write = pb::Operand::WRITE, adds = pb::Operand::ADD;

const Case cases[] = {
    {"Product", "", [](Toy &t) { return product(t, {t("bsf"), t("fh"), t("bsh", TP)}); }},
    {"ProductIsNoSum", "makes terms of 'bsh' over 16, and it is partial over 0",
     [](Toy &t) { return product(t, {t("bsf"), t("fh"), t("bsh")}); }},
    {"SumTwice", "makes terms of 'bsf' over 0, and it is partial over 2",
     [](Toy &t) { return product(t, {t("bsh"), t("hf"), t("bsf", DP)}); }},
    {"ProductOfTerms", "", [](Toy &t) { return product(t, {t("bsh", TP), t("hh"), t("bsh", TP)}); }},
    {"ProductOfTermsByTerms", "multiplies terms by terms",
     [](Toy &t) { return product(t, {t("bsh", TP), t("hh", TP), t("bsh", TP)}); }},
    {"BiasOncePerRank", "adds a bias to terms of 'bsh'",
     [](Toy &t) { return epilogue(t, pb::LibraryCall::BIAS, {t("bsf"), t("fh"), t("bsh", TP), t("h")}); }},
    {"SumOfTermsByAProduct", "",
     [](Toy &t) { return epilogue(t, pb::LibraryCall::ADD, {t("bsf"), t("fh"), t("bsh", TP), t("bsh", TP)}); }},
    {"SumOncePerRank", "adds 'bsh' to terms of 'bsh', and ranks hold other terms of it",
     [](Toy &t) { return epilogue(t, pb::LibraryCall::ADD, {t("bsf"), t("fh"), t("bsh", TP), t("bsh")}); }},
    {"BiasAndSumOncePerRank", "adds a bias to terms of 'bsh'",
     [](Toy &t) {
       return epilogue(t, pb::LibraryCall::BIAS_ADD, {t("bsf"), t("fh"), t("bsh", TP), t("h"), t("bsh")});
     }},
    // A sum over rows is complete if only the other factor is sharded over tp.
    {"GradientOfABias", "",
     [](Toy &t) { return epilogue(t, pb::LibraryCall::BIAS_GRADIENT, {t("bsf"), t("bsh"), t("fh", DP), t("h", DP)}); }},
    {"GradientOfABiasForgotten", "makes terms of 'h' over 2, and it is partial over 0",
     [](Toy &t) { return epilogue(t, pb::LibraryCall::BIAS_GRADIENT, {t("bsf"), t("bsh"), t("fh", DP), t("h")}); }},
    {"SumOfTerms", "",
     [](Toy &t) { return kernel(t, {{t("bsh", TP), read, 1}, {t("bsh", TP), read, 1}, {t("bsh", TP), write, 1}}); }},
    {"TermsAndASum", "adds up 'bsh', of which ranks hold terms over 0, and others over 16",
     [](Toy &t) { return kernel(t, {{t("bsh", TP), read, 1}, {t("bsh"), read, 1}, {t("bsh", TP), write, 1}}); }},
    {"TwoSums", "",
     [](Toy &t) {
       return kernel(t, {{t("bsh", TP), read, 1}, {t("bsh"), read, 2}, {t("bsh", TP), write, 1}, {t("bsh"), write, 2}});
     }},
    {"NormOfTerms", "takes terms of 'bsh' over 16 for the sum",
     [](Toy &t) { return kernel(t, {{t("bsh", TP)}, {t("bsh"), write}}); }},
    {"Softmax", "", [](Toy &t) { return softmax(t, "bsh", 16); }},
    {"SoftmaxOfHeadsInParts", "", [](Toy &t) { return softmax(t, "bsnd", 5); }},
    {"SoftmaxOfAPart", "uses sums over the columns [vocab 128 over 16], which are split",
     [](Toy &t) { return softmax(t, "bsv", 128); }},
    {"SoftmaxOverHeadsInParts", "uses sums over the columns [heads 2 over 16, head_dim 5], which are split",
     [](Toy &t) { return softmax(t, "bsnd", 10); }},
    {"SumOfRows", "", [](Toy &t) { return kernel(t, {{t("bsh")}, {t("ph", DP), write, 0, true}}); }},
    {"SumOfRowsForgotten", "makes terms of 'ph' over 2, and it is partial over 0",
     [](Toy &t) { return kernel(t, {{t("bsh")}, {t("ph"), write, 0, true}}); }},
    {"BesideAVocabularyInParts", "", [](Toy &t) { return kernel(t, {{t("bsv")}, {t("bs")}, {t("bs"), write}}); }},
    {"Greatest", "", [](Toy &t) { return kernel(t, {{t("bsv")}, {greatest(t, "bs", TP), write, 0, true}}); }},
    {"GreatestForgotten", "makes terms of 'bs' over 16, and it is partial over 0",
     [](Toy &t) { return kernel(t, {{t("bsv")}, {greatest(t, "bs", 0), write, 0, true}}); }},
    // A maximum that all ranks have is a term of itself. A sum is not.
    {"GreatestOfReplicas", "", [](Toy &t) { return kernel(t, {{t("bs")}, {greatest(t, "bs", TP), write}}); }},
    {"SumOfReplicas", "makes terms of 'bs' over 0, and it is partial over 16",
     [](Toy &t) { return kernel(t, {{t("bs")}, {t("bs", TP), write}}); }},
    {"GreatestReadBeforeItIsKnown", "takes terms of 'bs' over 16 for the sum",
     [](Toy &t) { return kernel(t, {{greatest(t, "bs", TP)}, {t("bs"), write}}); }},
    {"GreatestAddedUp", "takes terms of 'bs' over 16 for the sum",
     [](Toy &t) { return kernel(t, {{greatest(t, "bs", TP), read, 1}, {t("bs", TP), write, 1}}); }},
    {"SumMadeTheGreatest", "adds up terms of 'bs', of which the greatest is wanted",
     [](Toy &t) { return kernel(t, {{t("bs", TP), read, 1}, {greatest(t, "bs", TP), write, 1}}); }},
    // All tp ranks count the same loss. The kernel divides it by the number of ranks.
    {"Statistic", "", [](Toy &t) { return kernel(t, {{t("bs")}, {t("", DP | TP), adds, 0, true}}); }},
    {"StatisticOfOneReplica", "makes terms of '' over 2, and it is partial over 16",
     [](Toy &t) { return kernel(t, {{t("bs")}, {t("", TP), adds, 0, true}}); }},
};

class Instructions : public testing::TestWithParam<Case> {};

TEST_P(Instructions, AddUpTerms) {
  Toy toy;
  *toy.plan.add_subprograms()->add_instructions() = GetParam().make(toy);
  PlanErrors errors;
  verifyTerms(toy.plan, toy.mesh(), errors);
  std::string faults = fmt::format("{}", fmt::join(errors.list, "\n")), expected = GetParam().expected;
  EXPECT_EQ(faults.empty(), expected.empty()) << faults;
  EXPECT_NE(faults.find(expected), std::string::npos) << faults;
}

INSTANTIATE_TEST_SUITE_P(Rule, Instructions, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace espalier::rt::verify
