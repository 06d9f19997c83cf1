// The operands that library functions declare: kernels accept exactly these, and malformed sizes declare none.
#include "runtime/kernels/kernels.h"
#include "runtime/verify/library_functions.h"

#include <gtest/gtest.h>

namespace espalier::rt {
namespace {

using Call = pb::LibraryCall;

struct Case {
  Call::Function function;
  std::vector<int64_t> sizes;
  std::vector<double> floats = {};
  int scalars = 0;
  bool isCausal = false;
};

const std::vector<Case> cases = {
    {Call::MATMUL, {3, 4, 5, 2}},
    {Call::ATTENTION_FORWARD, {2, 3, 2, 3, 8}, {0.5, 0.1}, 5},
    {Call::ATTENTION_FORWARD, {2, 3, 2, 3, 8, 12}, {0.5, 0.1}, 5},
    {Call::ATTENTION_BACKWARD, {2, 3, 2, 3, 8}, {0.5, 0.1}, 5},
    {Call::ATTENTION_BACKWARD, {2, 3, 2, 3, 8, 12}, {0.5, 0.1}, 5},
    {Call::EMBED, {3, 7, 5}, {}, 1},
    {Call::EMBED_GRADIENT, {3, 7, 5}, {}, 1},
    {Call::ROPE, {3, 2, 4, 0}, {10000}},
    {Call::ROPE, {3, 2, 4, 0, 2, 1}, {10000, 2, 1, 4, 64, 1.5}},
    {Call::ATTENTION_FORWARD, {2, 12, 2, 3, 8, 12, 5}, {0.5, 0.1, 30}, 5, /*isCausal=*/true},
    {Call::ATTENTION_BACKWARD, {2, 12, 2, 3, 8, 12, 5}, {0.5, 0.1, 30}, 5, /*isCausal=*/true},
    {Call::ATTEND_CACHE, {2, 3, 2, 3, 8, 12, 5}, {0.5, 30}},
    {Call::SQUARED_NORM, {9}, {1}},
    {Call::COPY, {3, 20, 12}},
    {Call::ZERO, {12}},
    {Call::REDUCE_PARTS, {3, 7}},
    {Call::UPDATE_SCALARS, {}, {1}},
    {Call::REARRANGE, {3, 5, 8}},
    {Call::ATTEND_CACHE, {2, 3, 2, 3, 8, 12}, {0.5}},
    {Call::TAKE_ROW, {3, 5, 8}},
    {Call::ATTENTION_FORWARD, {2, 3, 2, 3, 8, 3, 0, 6}, {0.5, 0.1}, 5},
    {Call::ATTENTION_BACKWARD, {2, 3, 2, 3, 8, 12, 0, 6}, {0.5, 0.1}, 5},
    {Call::ATTEND_CACHE, {2, 3, 2, 3, 8, 12, 0, 6}, {0.5}},
    {Call::ROPE, {3, 2, 8, 0, 2, 1, 6}, {10000}},
    {Call::CONCAT, {3, 2, 4, 3, 7, 0}},
    {Call::CONCAT, {3, 2, 4, 3, 7, 1}},
    {Call::COLUMNS, {3, 2, 7, 3, 4, 0}},
    {Call::COLUMNS, {3, 2, 7, 3, 4, 1}},
    {Call::ROUTE, {2, 3, 4, 2, 2}},
    {Call::DISPATCH, {2, 3, 4, 5, 6, 2, 0}},
    {Call::COMBINE, {2, 3, 4, 5, 6, 2, 1}},
    {Call::RECURRENCE, {2, 3, 2, 3, 4, 5, 16, 0, 1}},
    {Call::RECURRENCE, {2, 3, 2, 3, 4, 5, 16, 1, 0}},
    {Call::RECURRENCE_GRADIENT, {2, 3, 2, 3, 4, 5, 16, 0, 1}},
    {Call::RECURRENCE_GRADIENT, {2, 3, 2, 3, 4, 5, 16, 1, 1}},
    {Call::CAUSAL_CONV, {2, 3, 5, 4}},
    {Call::RECURRENCE, {2, 3, 2, 3, 4, 5, 16, 0, 1, 1}},
    {Call::CAUSAL_CONV, {2, 3, 5, 4, 1}},
    {Call::CAUSAL_CONV, {2, 3, 5, 4, 0, 1, 3}},
    {Call::CAUSAL_CONV_GRADIENT, {2, 3, 5, 4}},
};

Call callOf(const Case &c) {
  Call call;
  call.set_function(c.function);
  call.mutable_sizes()->Add(c.sizes.begin(), c.sizes.end());
  call.mutable_floats()->Add(c.floats.begin(), c.floats.end());
  for (int i = 0; i < c.scalars; ++i)
    call.add_scalars();
  call.set_causal(c.isCausal);
  return call;
}

/// Gives `call` the buffers that it declares, and returns their types.
std::vector<pb::DataType> addBuffers(Call &call) {
  std::vector<pb::DataType> types;
  std::vector<OperandRule> rules = *operandsOf(call);
  for (const OperandRule &rule : rules) {
    char letter = rule.row->type;
    types.push_back(letter == 'i' ? pb::I32 : letter == 'f' || letter == 'e' ? pb::BF16 : pb::F32);
    int64_t width = letter == 'b' ? 1 : types.back() == pb::BF16 ? 2 : 4;
    call.add_buffers()->set_bytes(static_cast<uint64_t>(rule.elements * width));
  }
  return types;
}

// The kernel itself refuses a buffer that is one byte shorter than declared.
TEST(LibraryFunctions, DeclareTheOperandsOfKernels) {
  for (const Case &c : cases) {
    Call call = callOf(c);
    SCOPED_TRACE(Call::Function_Name(c.function));
    ASSERT_TRUE(operandsOf(call));
    std::vector<pb::DataType> types = addBuffers(call);
    EXPECT_NO_THROW(makeLibraryKernel(call, types, 1));
    for (int i = 0; i < call.buffers_size(); ++i) {
      Call smaller = call;
      smaller.mutable_buffers(i)->set_bytes(call.buffers(i).bytes() - 1);
      EXPECT_THROW(makeLibraryKernel(smaller, types, 1), std::invalid_argument) << "buffer " << i;
    }
    for (size_t i = 0; i < types.size(); ++i) {
      std::vector<pb::DataType> other = types;
      other[i] = types[i] == pb::I32 ? pb::F32 : pb::I32;
      if ((*operandsOf(call))[i].row->type != 'b')
        EXPECT_THROW(makeLibraryKernel(call, other, 1), std::invalid_argument) << "type " << i;
    }
  }
}

TEST(LibraryFunctions, MalformedSizesDeclareNothing) {
  for (const Case &c : cases) {
    if (c.sizes.empty())
      continue;
    SCOPED_TRACE(Call::Function_Name(c.function));
    Case fewer = c, negative = c, huge = c;
    fewer.sizes.resize(findFunction(c.function)->leastSizes() - 1);
    EXPECT_FALSE(operandsOf(callOf(fewer)));
    negative.sizes.back() = -1;
    huge.sizes.front() = int64_t{1} << 60;
    EXPECT_FALSE(operandsOf(callOf(huge)));
    EXPECT_FALSE(operandsOf(callOf(negative)));
    Case more = c;
    more.sizes.resize(findFunction(c.function)->sizes.size() + 1, 1);
    EXPECT_FALSE(operandsOf(callOf(more)));
  }
  Call unknown;
  unknown.set_function(static_cast<Call::Function>(77));
  EXPECT_FALSE(operandsOf(unknown));
}

TEST(LibraryFunctions, StoreDefinesTheAccessOfTheLastBuffer) {
  Call call = callOf(cases[0]);
  EXPECT_EQ((*operandsOf(call))[2].access, pb::Operand::WRITE);
  call.set_store(pb::ADD);
  EXPECT_EQ((*operandsOf(call))[2].access, pb::Operand::ADD);
  EXPECT_FALSE((*operandsOf(call))[2].unlessFirst);
  call.set_store(pb::ADD_UNLESS_FIRST);
  EXPECT_EQ((*operandsOf(call))[2].access, pb::Operand::ADD);
  EXPECT_TRUE((*operandsOf(call))[2].unlessFirst);
  EXPECT_NE((*operandsOf(call))[0].linear, (*operandsOf(call))[1].linear);
}

// Nonlinear epilogues do not accept partial sums. Neither does a bias, because every rank with a term would add it.
TEST(LibraryFunctions, EpiloguesDeclareTheirOperands) {
  struct Epilogue {
    Call::Epilogue name;
    bool isLinear;
    std::vector<std::pair<int64_t, pb::Operand::Access>> behind; // elements, access
  };
  constexpr auto read = pb::Operand::READ, write = pb::Operand::WRITE;
  const std::vector<Epilogue> epilogues = {
      {Call::BIAS, false, {{4, read}}},      {Call::GELU_GRADIENT, false, {{12, read}}},
      {Call::BIAS_GELU, false, {{4, read}}}, {Call::BIAS_GRADIENT, true, {{4, write}}},
      {Call::ADD, true, {{12, read}}},       {Call::BIAS_ADD, false, {{4, read}, {12, read}}}};
  for (const Epilogue &epilogue : epilogues) {
    SCOPED_TRACE(Call::Epilogue_Name(epilogue.name));
    Call call = callOf({Call::MATMUL, {3, 4, 5, 1}});
    call.set_epilogue(epilogue.name);
    std::vector<OperandRule> rules = *operandsOf(call);
    ASSERT_EQ(rules.size(), 3 + epilogue.behind.size());
    EXPECT_EQ(rules[0].linear > 0, epilogue.isLinear);
    for (size_t i = 0; i < epilogue.behind.size(); ++i) {
      EXPECT_EQ(rules[3 + i].elements, epilogue.behind[i].first);
      EXPECT_EQ(rules[3 + i].access, epilogue.behind[i].second);
    }
  }
}

// The operand of gelu is stored only if the call has a fifth buffer for it.
TEST(LibraryFunctions, GelusOperandIsStoredIfItHasABuffer) {
  Call call = callOf({Call::MATMUL, {3, 4, 5, 1}});
  call.set_epilogue(Call::BIAS_GELU);
  for (size_t buffers : {4, 5}) {
    call.mutable_buffers()->Clear();
    for (size_t i = 0; i < buffers; ++i)
      call.add_buffers();
    std::vector<OperandRule> rules = *operandsOf(call);
    ASSERT_EQ(rules.size(), buffers);
    EXPECT_EQ(rules.back().elements, buffers == 4 ? 4 : 12);
    EXPECT_EQ(rules.back().access, buffers == 4 ? pb::Operand::READ : pb::Operand::WRITE);
  }
}

} // namespace
} // namespace espalier::rt
