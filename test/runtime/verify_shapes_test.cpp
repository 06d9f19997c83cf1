// Tests rule K: the sizes, transposition and origins of library calls, and of kernels that replace them, follow from
// named dimensions. A case consists of one valid call or launch, one change, and the expected error text.
#include "test/runtime/toy_shapes.h"

#include <functional>
#include <gtest/gtest.h>

namespace espalier::rt::verify {
namespace {

struct CallCase {
  const char *name, *expected; ///< empty: no error
  std::function<pb::LibraryCall(Toy &)> make;
};

pb::LibraryCall product(Toy &toy) {
  return toy.call(pb::LibraryCall::MATMUL, {toy("bsh"), toy("hf"), toy("bsf")}, {24, 20, 16, 1});
}
pb::LibraryCall productWith(Toy &toy, pb::LibraryCall::Epilogue epilogue, std::initializer_list<const char *> others) {
  pb::LibraryCall call = product(toy);
  call.set_epilogue(epilogue);
  for (const char *dims : others)
    *call.add_buffers() = toy(dims);
  return call;
}
pb::LibraryCall slice(Toy &toy) {
  pb::LibraryCall call = toy.call(pb::LibraryCall::COPY, {toy("bsh"), toy("bqh")}, {4, 384, 192});
  call.mutable_buffers(0)->mutable_reads_at()->set_tp(192);
  return call;
}
pb::LibraryCall attention(Toy &toy) {
  pb::LibraryCall call =
      toy.call(pb::LibraryCall::ATTENTION_FORWARD,
               {toy("bsnd"), toy("bsnd"), toy("bsnd"), toy("bsnd"), toy("bsn"), toy("")}, {4, 6, 2, 1, 5});
  call.add_scalars()->set_layer(256);
  pb::Affine &sample = *call.add_scalars();
  sample.set_micro_batch(8);
  sample.set_dp(4);
  call.add_scalars()->set_tp(2);
  call.add_scalars()->set_constant(6);
  call.add_scalars();
  return call;
}

/// Values have the dims `values`, and `columns` is the last size of the call.
pb::LibraryCall attentionWithValues(Toy &toy, const char *values, int64_t columns) {
  pb::LibraryCall call = attention(toy);
  for (int buffer : {2, 3})
    *call.mutable_buffers(buffer) = toy(values);
  for (int64_t size : {int64_t(6), int64_t(0), columns})
    call.add_sizes(size);
  return call;
}

pb::LibraryCall route(Toy &toy) {
  return toy.call(pb::LibraryCall::ROUTE, {toy("bsx"), toy("cbs"), toy("cbs")}, {4, 6, 8, 3, 7});
}
pb::LibraryCall dispatch(Toy &toy, const std::string &experts, int64_t count) {
  return toy.call(pb::LibraryCall::DISPATCH, {toy("cbs"), toy("cbs"), toy("bsh"), toy(experts)},
                  {3, 4, 6, 16, count, 7, 0});
}

const CallCase calls[] = {
    {"Product", "", product},
    {"Transposed", "transposed",
     [](Toy &toy) {
       pb::LibraryCall call = product(toy);
       call.set_transpose_b(true);
       return call;
     }},
    {"RowsForColumns", "has sizes 20 24 16 1, its dims give 24 20 16 1",
     [](Toy &toy) {
       pb::LibraryCall call = product(toy);
       call.mutable_sizes()->SwapElements(0, 1);
       return call;
     }},
    {"OperandsCrossed", "have no product",
     [](Toy &toy) { return toy.call(pb::LibraryCall::MATMUL, {toy("bsh"), toy("fv"), toy("bsf")}, {24, 20, 16, 1}); }},
    {"Scalar", "has 1 scalars and takes none",
     [](Toy &toy) {
       pb::LibraryCall call = product(toy);
       call.add_scalars();
       return call;
     }},
    {"BiasAndSum", "", [](Toy &toy) { return productWith(toy, pb::LibraryCall::BIAS_ADD, {"f", "bsf"}); }},
    {"BiasOfRows", "buffers 2 and 3 hold", [](Toy &toy) { return productWith(toy, pb::LibraryCall::BIAS, {"h"}); }},
    {"SumOfOtherRows", "buffers 2 and 3 hold",
     [](Toy &toy) { return productWith(toy, pb::LibraryCall::ADD, {"bsh"}); }},
    {"GeluOfOtherRows", "buffers 2 and 4 hold",
     [](Toy &toy) { return productWith(toy, pb::LibraryCall::BIAS_GELU, {"f", "bsh"}); }},
    {"Slice", "", slice},
    {"SliceOfAnother", "reads at tp: 193, its part begins at tp: 192",
     [](Toy &toy) {
       pb::LibraryCall call = slice(toy);
       call.mutable_buffers(0)->mutable_reads_at()->set_tp(193);
       return call;
     }},
    {"SliceStride", "has sizes 4 192 192, its dims give 4 384 192",
     [](Toy &toy) {
       pb::LibraryCall call = slice(toy);
       call.set_sizes(1, 192);
       return call;
     }},
    {"View", "", [](Toy &toy) { return toy.call(pb::LibraryCall::COPY, {toy("k"), toy("jl")}, {1, 168, 168}); }},
    {"ViewOfPart", "has sizes 1 84 84, its dims give 1 168 168",
     [](Toy &toy) { return toy.call(pb::LibraryCall::COPY, {toy("k"), toy("jl")}, {1, 84, 84}); }},
    {"ViewOfAnotherSize", "hold",
     [](Toy &toy) { return toy.call(pb::LibraryCall::COPY, {toy("k"), toy("j")}, {1, 168, 168}); }},
    {"ViewOfAnyDims", "",
     [](Toy &toy) { return toy.call(pb::LibraryCall::COPY, {toy("sa"), toy("k")}, {1, 168, 168}); }},
    {"ViewOfAnyDimsAt", "reads at tp: 4, its part begins at 0",
     [](Toy &toy) {
       pb::LibraryCall call = toy.call(pb::LibraryCall::COPY, {toy("sa"), toy("k")}, {1, 168, 168});
       call.mutable_buffers(0)->mutable_reads_at()->set_tp(4);
       return call;
     }},
    {"ViewInOtherDims", "hold",
     [](Toy &toy) { return toy.call(pb::LibraryCall::COPY, {toy("k"), toy("sa")}, {1, 168, 168}); }},
    {"Gathered", "",
     [](Toy &toy) { return toy.call(pb::LibraryCall::REARRANGE, {toy("pbrh"), toy("bsh")}, {2, 4, 192}); }},
    {"Embed", "",
     [](Toy &toy) {
       pb::LibraryCall call = toy.call(pb::LibraryCall::EMBED, {toy("vh"), toy("bs"), toy("bsh", TP)}, {24, 128, 16});
       call.add_scalars()->set_tp(128);
       return call;
     }},
    {"EmbedOtherRows", "scalar 0 is tp: 64, it must be tp: 128",
     [](Toy &toy) {
       pb::LibraryCall call = toy.call(pb::LibraryCall::EMBED, {toy("vh"), toy("bs"), toy("bsh", TP)}, {24, 128, 16});
       call.add_scalars()->set_tp(64);
       return call;
     }},
    {"Route", "", route},
    {"RouteOfAnotherSample", "has sizes 6 4 8 3 7, its dims give 4 6 8 3 7",
     [](Toy &toy) {
       pb::LibraryCall call = route(toy);
       call.mutable_sizes()->SwapElements(0, 1);
       return call;
     }},
    {"RouteOverPartOfASequence", "whose seq must not be split",
     [](Toy &toy) { return toy.call(pb::LibraryCall::ROUTE, {toy("bqx"), toy("cbq"), toy("cbq")}, {4, 3, 8, 3, 7}); }},
    {"RouteWithASlotForEachToken", "",
     [](Toy &toy) { return toy.call(pb::LibraryCall::ROUTE, {toy("bqx"), toy("cbq"), toy("cbq")}, {4, 3, 8, 3, 3}); }},
    {"Dispatch", "", [](Toy &toy) { return dispatch(toy, "ebah", 8); }},
    {"DispatchToPartOfTheExperts", "whose experts must not be split",
     [](Toy &toy) { return dispatch(toy, "gbah", 4); }},
    {"DispatchOtherCapacity", "its dims give 3 4 6 16 8 7 0",
     [](Toy &toy) {
       pb::LibraryCall call = dispatch(toy, "ebah", 8);
       call.set_sizes(5, 6);
       return call;
     }},
    {"CombineWeighted", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::COMBINE, {toy("cbs"), toy("cbs"), toy("ebah"), toy("cbs"), toy("bsh")},
                       {3, 4, 6, 16, 8, 7, 0});
     }},
    {"CombineByChoice", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::COMBINE, {toy("cbs"), toy("cbs"), toy("ebah"), toy("cbsh")},
                       {3, 4, 6, 16, 8, 7, 1});
     }},
    {"CombineOtherHidden", "buffers 2 and 3 hold",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::COMBINE, {toy("cbs"), toy("cbs"), toy("ebah"), toy("bsf")},
                       {3, 4, 6, 16, 8, 7, 0});
     }},
    {"Rope", "",
     [](Toy &toy) { return toy.call(pb::LibraryCall::ROPE, {toy("bsnd"), toy("bs"), toy("bsnd")}, {24, 2, 5, 1}); }},
    {"RopeOfOtherTokens", "buffers 1 and 0 hold [batch 4 over 2, seq 6] and [seq 6, batch 4",
     [](Toy &toy) { return toy.call(pb::LibraryCall::ROPE, {toy("sbnd"), toy("bs"), toy("sbnd")}, {24, 2, 5, 1}); }},
    {"RopeByHeads", "has sizes 48 1 5 1, its dims give 24 2 5 1",
     [](Toy &toy) { return toy.call(pb::LibraryCall::ROPE, {toy("bsnd"), toy("bs"), toy("bsnd")}, {48, 1, 5, 1}); }},
    {"RopeOfTheFirstColumns", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::ROPE, {toy("bsnd"), toy("bs"), toy("bsnd")}, {24, 2, 5, 1, 4, 1});
     }},
    {"RopeOfTheFirstColumnsByHeads", "has sizes 48 1 5 1 4, its dims give 24 2 5 1 4",
     [](Toy &toy) { return toy.call(pb::LibraryCall::ROPE, {toy("bsnd"), toy("bs"), toy("bsnd")}, {48, 1, 5, 1, 4}); }},
    {"RowOfEachSequence", "",
     [](Toy &toy) { return toy.call(pb::LibraryCall::TAKE_ROW, {toy("bsh"), toy("b"), toy("boh")}, {4, 6, 64}); }},
    {"RowsOfElements", "has sizes 4 6 16, its dims give 4 6 64",
     [](Toy &toy) { return toy.call(pb::LibraryCall::TAKE_ROW, {toy("bsh"), toy("b"), toy("boh")}, {4, 6, 16}); }},
    {"MoreThanARow", "not one row",
     [](Toy &toy) { return toy.call(pb::LibraryCall::TAKE_ROW, {toy("bsh"), toy("b"), toy("bsh")}, {4, 6, 64}); }},
    {"Parts", "", [](Toy &toy) { return toy.call(pb::LibraryCall::REDUCE_PARTS, {toy("psh"), toy("sh")}, {2, 96}); }},
    {"PartsThatAreSamples", "no parts of a sum",
     [](Toy &toy) { return toy.call(pb::LibraryCall::REDUCE_PARTS, {toy("bsh"), toy("sh")}, {4, 96}); }},
    {"Attention", "", attention},
    {"AttentionWithOtherValues", "", [](Toy &toy) { return attentionWithValues(toy, "bsnw", 10); }},
    {"AttentionWithOtherValuesBySize", "has sizes 4 6 2 1 5 6 0 9, its dims give 4 6 2 1 5 6 0 10",
     [](Toy &toy) { return attentionWithValues(toy, "bsnw", 9); }},
    {"AttentionWithPartsOfValues", "whose value_dim must not be split",
     [](Toy &toy) { return attentionWithValues(toy, "bsnu", 10); }},
    {"Concat", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::CONCAT, {toy("bsnd"), toy("bsnw"), toy("bsny")}, {24, 2, 5, 10, 15, 1});
     }},
    {"ConcatOfSharedColumns", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::CONCAT, {toy("bsnd"), toy("bsw"), toy("bsny")}, {24, 2, 5, 10, 15, 0});
     }},
    {"ConcatInOtherOrder", "has sizes 24 2 10 5 15 1, its dims give 24 2 5 10 15 1",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::CONCAT, {toy("bsnd"), toy("bsnw"), toy("bsny")}, {24, 2, 10, 5, 15, 1});
     }},
    {"ConcatOfAShard", "whose b_columns must not be split",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::CONCAT, {toy("bsnd"), toy("bsnu"), toy("bsny")}, {24, 2, 5, 10, 15, 1});
     }},
    {"Recurrence", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::RECURRENCE,
                       {toy("bsnd"), toy("bsnd"), toy("bsnw"), toy("bsn"), toy("bsn"), toy("bsnw")},
                       {4, 6, 2, 1, 5, 10, 64, 0, 1});
     }},
    {"RecurrenceOfAShardOfColumns", "whose value_dim must not be split",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::RECURRENCE,
                       {toy("bsnd"), toy("bsnd"), toy("bsnu"), toy("bsn"), toy("bsn"), toy("bsnu")},
                       {4, 6, 2, 1, 5, 10, 64, 0, 1});
     }},
    {"RecurrenceWithColumnsAsHeads", "has sizes 4 6 2 1 10 5 64 0 1, its dims give 4 6 2 1 5 10 64 0 1",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::RECURRENCE,
                       {toy("bsnd"), toy("bsnd"), toy("bsnw"), toy("bsn"), toy("bsn"), toy("bsnw")},
                       {4, 6, 2, 1, 10, 5, 64, 0, 1});
     }},
    {"RecurrenceGradient", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::RECURRENCE_GRADIENT,
                       {toy("bsnd"), toy("bsnd"), toy("bsnw"), toy("bsnd"), toy("bsn"), toy("bsnw"), toy("bsnd"),
                        toy("bsnd"), toy("bsnw"), toy("bsnd"), toy("bsn")},
                       {4, 6, 2, 1, 5, 10, 16, 1, 0});
     }},
    {"CausalConv", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::CAUSAL_CONV, {toy("bsnd"), toy("ndc"), toy("bsnd")}, {4, 6, 10, 3});
     }},
    {"CausalConvOfAShardOfTheSequence", "whose seq must not be split",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::CAUSAL_CONV, {toy("bqnd"), toy("ndc"), toy("bqnd")}, {4, 3, 10, 3});
     }},
    {"CausalConvGradient", "",
     [](Toy &toy) {
       return toy.call(pb::LibraryCall::CAUSAL_CONV_GRADIENT, {toy("bsnd"), toy("bsnd"), toy("ndc", DP)},
                       {4, 6, 10, 3});
     }},
    {"SumOfColumns", "",
     [](Toy &toy) { return toy.call(pb::LibraryCall::COLUMNS, {toy("bsny"), toy("bsw")}, {24, 2, 15, 10, 5, 0}); }},
    {"SumOfColumnsByHead", "has sizes 24 2 15 10 5 1, its dims give 24 2 15 10 5 0",
     [](Toy &toy) { return toy.call(pb::LibraryCall::COLUMNS, {toy("bsny"), toy("bsw")}, {24, 2, 15, 10, 5, 1}); }},
    {"AttentionOfTheWholeSequence", "",
     [](Toy &toy) {
       pb::LibraryCall call = attention(toy);
       for (int buffer : {0, 3}) // the sequence of the queries is sharded over tp, and each rank has all heads
         *call.mutable_buffers(buffer) = toy("bqmd");
       for (int buffer : {1, 2})
         *call.mutable_buffers(buffer) = toy("bsmd");
       *call.mutable_buffers(4) = toy("bqm");
       call.set_sizes(1, 3);
       call.set_sizes(2, 4);
       call.add_sizes(6);
       call.mutable_scalars(2)->clear_tp();
       call.mutable_scalars(4)->set_tp(3);
       return call;
     }},
    {"AttentionInAWindow", "",
     [](Toy &toy) {
       pb::LibraryCall call = attention(toy);
       call.add_sizes(6);
       call.add_sizes(3);
       return call;
     }},
    {"AttentionInAWindowOfOtherKeys", "has sizes 4 6 2 1 5 5 3, its dims give 4 6 2 1 5 6 3",
     [](Toy &toy) {
       pb::LibraryCall call = attention(toy);
       call.add_sizes(5);
       call.add_sizes(3);
       return call;
     }},
    {"AttentionOfAnotherPart", "neither the seq of buffer 0 nor the whole of it",
     [](Toy &toy) {
       pb::LibraryCall call = attention(toy);
       for (int buffer : {1, 2})
         *call.mutable_buffers(buffer) = toy("brnd");
       return call;
     }},
    {"AttentionOtherHead", "scalar 2 is 0, it must be tp: 2",
     [](Toy &toy) {
       pb::LibraryCall call = attention(toy);
       call.mutable_scalars(2)->clear_tp();
       return call;
     }},
    {"AttentionSample", "it must be micro_batch: 8",
     [](Toy &toy) {
       pb::LibraryCall call = attention(toy);
       call.mutable_scalars(1)->set_micro_batch(4);
       return call;
     }},
    {"AttentionSizes", "its dims give 4 6 2 1 5",
     [](Toy &toy) {
       pb::LibraryCall call = attention(toy);
       call.mutable_sizes()->SwapElements(0, 1);
       return call;
     }},
};

class Calls : public testing::TestWithParam<CallCase> {};

TEST_P(Calls, SizesFollowFromDims) {
  Toy toy;
  pb::LibraryCall call = GetParam().make(toy);
  std::string fault = faultOfProduct(toy.plan, toy.mesh(), call), expected = GetParam().expected;
  EXPECT_EQ(fault.empty(), expected.empty()) << fault;
  EXPECT_NE(fault.find(expected), std::string::npos) << fault;
}

INSTANTIATE_TEST_SUITE_P(Rule, Calls, testing::ValuesIn(calls),
                         [](const auto &info) { return std::string(info.param.name); });

/// A launch of a kernel that replaces a library call.
class Launches : public testing::Test {
protected:
  void take(const char *shape, std::initializer_list<const char *> buffers, std::initializer_list<int64_t> scalars) {
    kernel.set_shape(shape);
    kernel.set_scalars(static_cast<uint32_t>(scalars.size()));
    for (const char *dims : buffers) {
      kernel.add_operands();
      *launch.add_buffers() = toy(dims);
    }
    for (int64_t number : scalars)
      launch.add_scalars()->set_constant(number);
  }
  std::string fault() { return faultOfSpace(toy.plan, toy.mesh(), launch); }

  Toy toy;
  pb::Kernel &kernel = *toy.plan.add_kernels();
  pb::Launch launch;
};

TEST_F(Launches, ReducePartsMatchesItsSums) {
  take("reduce_parts", {"pv", "pv", "v", "v"}, {2, 128, 2}); // the partial results of two sums, and the sums
  EXPECT_EQ(fault(), "");
  launch.mutable_scalars(0)->set_constant(1);
  EXPECT_NE(fault().find("scalar 0 is 1, the dims of its buffers give 2 sums"), std::string::npos) << fault();
  launch.mutable_scalars(0)->set_constant(2);
  launch.mutable_scalars(1)->set_constant(64);
  EXPECT_NE(fault().find("scalar 1 is 64, the dims of its buffers give 128 n"), std::string::npos) << fault();
}

/// A kernel that replaces a library call must satisfy the call's row.
TEST_F(Launches, MatchTheReplacedCall) {
  take("embed", {"vh", "bs", "bsh"}, {0, 128, 16}); // scalars: the first row, rows, hidden
  kernel.set_space(1);
  for (auto use : {pb::Kernel::FIRST_ROW, pb::Kernel::SIZE, pb::Kernel::SIZE})
    kernel.add_uses(use);
  launch.mutable_scalars(0)->set_tp(128);
  EXPECT_EQ(fault(), "");
  launch.mutable_scalars(0)->set_tp(127);
  EXPECT_NE(fault().find("scalar 0 is tp: 127, it must be tp: 128"), std::string::npos) << fault();
  launch.mutable_scalars(0)->set_tp(128);
  launch.mutable_scalars(2)->set_constant(17);
  EXPECT_NE(fault().find("scalar 2 is 17, the dims of its buffers give 16 hidden"), std::string::npos) << fault();
  launch.mutable_scalars(2)->set_constant(16);
  *launch.mutable_buffers(1) = toy("b");
  EXPECT_NE(fault().find("not the dims of out"), std::string::npos) << fault();
  launch.mutable_buffers()->RemoveLast();
  EXPECT_NE(fault().find("has 2 buffers, a kernel of shape embed takes 3"), std::string::npos) << fault();
}

/// No rule covers what a generated kernel computes. The equivalence suite tests it.
TEST_F(Launches, GeneratedKernelsAcceptAnyScalar) {
  take("row", {"bsv"}, {128, 7});
  kernel.add_uses(pb::Kernel::SIZE);
  kernel.add_uses(pb::Kernel::NUMBER);
  EXPECT_EQ(fault(), "");
}

TEST(Origins, AreThoseOfTheMeshOrder) {
  Toy toy;
  Mesh mesh = toy.mesh();
  Shapes shapes(toy.plan, mesh);
  EXPECT_TRUE(isSame(shapes.index(DP | TP, 3), sum(shapes.index(DP, 6), shapes.index(TP, 3))));
  EXPECT_EQ(shapes.whole({"seq", 3, DP | TP}), 12);
}

} // namespace
} // namespace espalier::rt::verify
