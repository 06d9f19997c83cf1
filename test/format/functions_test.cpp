// Tests the rows of functions.def and the properties that are derived from them.
#include "format/abi.h"
#include "format/functions.h"
#include "format/plan.pb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::rt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> namesOf(const std::vector<const OperandSignature *> &operands) {
  std::vector<std::string> names;
  for (const OperandSignature *operand : operands)
    names.push_back(operand->name);
  return names;
}

std::string faultOf(std::string_view text) {
  try {
    parseFunction(1, "SOME", text);
  } catch (const std::invalid_argument &error) {
    return error.what();
  }
  return "";
}

TEST(Functions, HaveTheNumbersOfThePlan) {
  EXPECT_EQ(functionSignatures().size(), static_cast<size_t>(pb::LibraryCall::Function_ARRAYSIZE));
  for (const FunctionSignature &row : functionSignatures()) {
    std::string name = pb::LibraryCall::Function_Name(static_cast<pb::LibraryCall::Function>(row.number));
    EXPECT_STRCASEEQ(name.c_str(), row.name.c_str());
    EXPECT_EQ(findFunction(row.number), &row);
    EXPECT_EQ(findFunction(row.name), &row);
  }
  EXPECT_EQ(epilogueSignatures().size(), static_cast<size_t>(pb::LibraryCall::Epilogue_ARRAYSIZE));
  for (const EpilogueSignature &row : epilogueSignatures()) {
    std::string name = pb::LibraryCall::Epilogue_Name(static_cast<pb::LibraryCall::Epilogue>(row.number));
    EXPECT_STRCASEEQ(name.c_str(), row.name.c_str());
    EXPECT_EQ(findEpilogue(row.name), findEpilogue(row.number));
  }
  EXPECT_EQ(findFunction(77), nullptr);
  EXPECT_EQ(findFunction("no_function"), nullptr);
}

// Each scalar is a kind of plan.proto, a size of the function, or known only to the kernels.
TEST(Functions, ScalarsAreKindsOfThePlanOrSizes) {
  auto check = [](const Signature &row) {
    for (const ScalarSignature &scalar : row.scalars) {
      pb::Kernel::Scalar kind;
      EXPECT_NE(scalar.isSize(), pb::Kernel::Scalar_Parse(scalar.name, &kind)) << row.name << " " << scalar.name;
    }
  };
  for (const FunctionSignature &row : functionSignatures())
    check(row);
  for (const KernelSignature &row : kernelSignatures())
    check(row);
}

TEST(Functions, ARowDescribesAnOperandCompletely) {
  const FunctionSignature &rope = *findFunction("rope");
  ASSERT_EQ(rope.operands.size(), 3U);
  const OperandSignature &x = rope.operands[0], &positions = rope.operands[1], &y = rope.operands[2];
  EXPECT_TRUE(x.isLinear && x.isRead() && !x.isWritten() && x.type == 'f' && x.dims.size() == 3);
  EXPECT_TRUE(positions.type == 'i' && !positions.isLinear && positions.dims == std::vector{x.dims[0]});
  EXPECT_TRUE(x.dims[0].isMany && !x.dims[2].isMany && x.dims[2].size == 2);
  EXPECT_TRUE(y.isWritten() && !y.isRead() && y.over == "x" && y.dims == x.dims);
  EXPECT_TRUE(rope.sizes[3].isFlag && rope.sizes[3].name == "inverse");
  const FunctionSignature &attention = *findFunction("attention_forward");
  const OperandSignature &maxima = attention.operands[6], &step = attention.operands[7];
  EXPECT_TRUE(maxima.name == "maxima" && maxima.flag == "keeps_maxima" && maxima.isSum && !maxima.isOptional);
  EXPECT_EQ(maxima.access, OperandSignature::Access::Add);
  EXPECT_TRUE(step.name == "step" && step.isRead() && step.isSlot);
  EXPECT_TRUE(attention.operands[3].name == "visible_from" && attention.operands[3].isOptional);
  EXPECT_FALSE(attention.operands[1].isLinear);
  EXPECT_TRUE(attention.operands[2].isLinear && attention.hasFlag("causal") && attention.space == "q");
  EXPECT_EQ(attention.operands[1].dims[2], attention.operands[2].dims[2]);
  EXPECT_TRUE(attention.operands[2].dims[3].name == "value_dim" && attention.isWhole("value_dim"));
  EXPECT_EQ(findEpilogue("bias_gradient")->operands[0].of, "b");
  EXPECT_TRUE(findEpilogue("add")->isLinear && !findEpilogue("bias_add")->isLinear);
  EXPECT_EQ(findSlot("loss_scale"), LossScale);
  EXPECT_FALSE(findSlot("x"));
}

TEST(Functions, OptionalSizesHaveDefaults) {
  const FunctionSignature &attention = *findFunction("attention_forward");
  int64_t given[] = {2, 9, 3, 4, 8, 36}, negative[] = {2, -9, 3, 4, 8};
  EXPECT_EQ(allSizes(attention, std::span(given, 5)), (std::vector<int64_t>{2, 9, 3, 4, 8, 9, 0, 8, 0, 0}));
  EXPECT_EQ(allSizes(attention, given), (std::vector<int64_t>{2, 9, 3, 4, 8, 36, 0, 8, 0, 0}));
  EXPECT_FALSE(allSizes(attention, std::span(given, 4)));
  EXPECT_FALSE(allSizes(attention, negative));
  int64_t rope[] = {3, 2, 4, 2}, tooMany[] = {3, 2, 4, 1, 2, 1, 2, 1};
  EXPECT_FALSE(allSizes(*findFunction("rope"), rope));
  EXPECT_FALSE(allSizes(*findFunction("rope"), tooMany));
  EXPECT_EQ(allSizes(*findFunction("rope"), std::span(tooMany, 4)), (std::vector<int64_t>{3, 2, 4, 1, 0, 0, 0}));
  EXPECT_EQ(attention.leastFloats(), 1U);
}

int64_t elements(std::string_view function, std::string_view operand, std::vector<int64_t> sizes) {
  const FunctionSignature &row = *findFunction(function);
  return elementsOf(row.operands[*row.findOperand(operand)], row, *allSizes(row, sizes)).value_or(-1);
}

TEST(Functions, ElementsAreProductsOfSizes) {
  EXPECT_EQ(elements("attention_forward", "k", {2, 9, 3, 4, 8, 36}), 2 * 36 * 3 * 8);
  EXPECT_EQ(elements("attention_forward", "lse", {2, 9, 3, 4, 8, 36}), 2 * 9 * 3 * 4);
  EXPECT_EQ(elements("attention_forward", "step", {2, 9, 3, 4, 8, 36}), 1);
  EXPECT_EQ(elements("dispatch", "x", {2, 3, 5, 7, 11, 13, 0}), 3 * 5 * 7);
  EXPECT_EQ(elements("dispatch", "x", {2, 3, 5, 7, 11, 13, 1}), 2 * 3 * 5 * 7);
  EXPECT_EQ(elements("take_row", "row", {3, 5, 28}), 3 * 28);
  EXPECT_EQ(elements("copy", "from", {3, 20, 12}), 2 * 20 + 12);
  EXPECT_EQ(elements("copy", "from", {0, 20, 12}), 0);
  EXPECT_EQ(elements("copy", "to", {3, 20, 12}), 36);
  EXPECT_EQ(elements("matmul", "c", {int64_t{1} << 40, int64_t{1} << 40, 1, 1}), -1);
  EXPECT_EQ(elements("zero", "to", {int64_t{1} << 48}), -1);
}

TEST(Functions, OptionalOperandsAreTheBuffersThatThereAre) {
  const FunctionSignature &dispatch = *findFunction("dispatch"), &matmul = *findFunction("matmul");
  EXPECT_THAT(namesOf(operandsOf(dispatch, nullptr, 4)), ElementsAre("ids", "slots", "x", "y"));
  EXPECT_THAT(namesOf(operandsOf(dispatch, nullptr, 5)), ElementsAre("ids", "slots", "x", "weights", "y"));
  EXPECT_THAT(namesOf(operandsOf(matmul, findEpilogue("bias_gelu"), 4)), ElementsAre("a", "b", "c", "bias"));
  EXPECT_THAT(namesOf(operandsOf(matmul, findEpilogue("bias_gelu"), 5)), ElementsAre("a", "b", "c", "bias", "x"));
  EXPECT_THAT(namesOf(operandsOf(*findKernel("reduce_parts"), 4)), ElementsAre("parts", "parts", "out", "out"));
  const FunctionSignature &attention = *findFunction("attention_forward");
  const std::vector<int64_t> kept = {2, 9, 3, 4, 8, 9, 0, 8, 0, 1}, plain(kept.begin(), kept.begin() + 5);
  EXPECT_THAT(namesOf(operandsOf(attention, nullptr, 6, plain)), ElementsAre("q", "k", "v", "out", "lse", "step"));
  EXPECT_THAT(namesOf(operandsOf(attention, nullptr, 7, plain)),
              ElementsAre("q", "k", "v", "visible_from", "out", "lse", "step"));
  EXPECT_THAT(namesOf(operandsOf(attention, nullptr, 7, kept)),
              ElementsAre("q", "k", "v", "out", "lse", "maxima", "step"));
  EXPECT_THAT(namesOf(operandsOf(attention, nullptr, 8, kept)),
              ElementsAre("q", "k", "v", "visible_from", "out", "lse", "maxima", "step"));
  EXPECT_THAT(namesOf(operandsOf(*findKernel("combine"), 4)), ElementsAre("ids", "slots", "x", "y"));
}

TEST(Functions, KernelsTakeOperandsFromTheirFunction) {
  const KernelSignature &sum = *findKernel("sum_segments"), &join = *findKernel("join_segments");
  EXPECT_EQ(sum.function, findFunction("embed_gradient"));
  const OperandSignature &dout = sum.operands[2], &partial = sum.operands[3];
  EXPECT_TRUE(dout.name == "dout" && dout.type == 'f' && dout.dims == sum.function->operands[1].dims);
  EXPECT_TRUE(sum.isScratch(partial) && !sum.isScratch(dout) && sum.reachesByExtent(partial));
  EXPECT_FALSE(sum.reachesByExtent(dout));
  EXPECT_EQ(join.operands[2].dims, partial.dims);
  EXPECT_EQ(join.operands[3].access, OperandSignature::Access::Update);
  EXPECT_FALSE(findKernel("order_tokens")->reachesByExtent(findKernel("order_tokens")->operands[2]));
  EXPECT_TRUE(findKernel("combine")->reachesByExtent(findKernel("combine")->operands.back()));
  EXPECT_FALSE(findKernel("combine")->reachesByExtent(findKernel("combine")->operands[0]));
  EXPECT_TRUE(findKernel("update_scalars")->reachesByExtent(findKernel("update_scalars")->operands[5]));
  EXPECT_FALSE(findKernel("update_scalars")->reachesByExtent(findKernel("update_scalars")->operands[0]));
  EXPECT_TRUE(findKernel("attention_forward")->isCounted);
}

TEST(Functions, ErrorsOfARowHaveALocation) {
  EXPECT_EQ(faultOf("x:f[n] -> y:f[n]; sizes n"), "");
  EXPECT_THAT(faultOf("x:g[n] -> y:f[n]; sizes n"), HasSubstr("SOME: needs a type f, e, s, i or b, got g before '[n]"));
  EXPECT_THAT(faultOf("x:f[m] -> y:f[n]; sizes n"), HasSubstr("m is no size"));
  EXPECT_THAT(faultOf("x -> y; sizes n"), HasSubstr("y needs a type"));
  EXPECT_THAT(faultOf("x:f[n m]; sizes n m"), HasSubstr("needs ',' or ']' before 'm]"));
  EXPECT_THAT(faultOf("x:f[n]; size n"), HasSubstr("needs a clause"));
  EXPECT_THAT(faultOf("x:f[n] -> y:f[n] over z; sizes n"), HasSubstr("z is no operand"));
  EXPECT_THAT(faultOf("slot x:s[]"), HasSubstr("x is no slot"));
  EXPECT_THAT(faultOf("x:f[n] -> if m y:f[n]; sizes n"), HasSubstr("m is no size"));
  EXPECT_THAT(faultOf("x:f[n]; sizes n; whole m"), HasSubstr("m is no size"));
  EXPECT_THAT(faultOf("x:f[n]; sizes n; scalars FIRST_ROW"), HasSubstr("scalars need 'of'"));
}

} // namespace
} // namespace espalier::rt
